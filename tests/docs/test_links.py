"""What the documents point at is there."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def dead_links(document: Path) -> Iterator[str]:
    """Name each relative link whose file does not exist, by document and line."""
    for line_no, line in enumerate(document.read_text(encoding="utf-8").split("\n"), start=1):
        for target in LINK.findall(line):
            path = target.partition("#")[0]
            if path and "://" not in path and not (document.parent / path).exists():
                yield f"{document.name}:{line_no}: '{target}'"


def test_every_relative_link_leads_somewhere() -> None:
    assert [dead for document in documents() for dead in dead_links(document)] == []


def test_a_dead_link_is_named(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("[site](https://example.org/x) [self](#top) [good](a.md#top)\n\n[bad](../nowhere.md)\n")
    assert list(dead_links(document)) == ["a.md:3: '../nowhere.md'"]
