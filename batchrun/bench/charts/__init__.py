"""Charts as SVG text: pure functions from values to a picture that takes its colours from the page around it.

A page sets `--c1` to `--c6` (lines), `--ink`, `--muted` (axes and their words) and `--grid`. Lines differ by dash and
mark as well as by colour, so that a picture can be read without telling colours apart.
"""
