"""Measurements of the product, each a ratio or a rate in one run on one machine."""
