"""What the documents point at is there."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors_of(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as they are made from their text."""
    text = FENCED.sub("", document.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(document: Path) -> Iterator[str]:
    """Name each relative link whose file or heading does not exist, by document and line."""
    for line_no, line in enumerate(document.read_text(encoding="utf-8").split("\n"), start=1):
        for target in LINK.findall(line):
            path, _, anchor = target.partition("#")
            if "://" in path:
                continue
            file = document.parent / path if path else document
            if not file.exists() or (anchor and anchor not in anchors_of(file)):
                yield f"{document.name}:{line_no}: '{target}'"


def test_every_relative_link_leads_somewhere() -> None:
    assert [dead for document in documents() for dead in dead_links(document)] == []


def test_a_dead_link_is_named(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# The top, of it\n[site](https://example.org/x) [self](#the-top-of-it) [good](a.md#the-top-of-it)\n\n"
        "[bad](../nowhere.md)\n[worse](#nowhere)\n"
    )
    assert list(dead_links(document)) == ["a.md:4: '../nowhere.md'", "a.md:5: '#nowhere'"]


def test_every_page_is_linked_from_another() -> None:
    linked = {
        (document.parent / target.partition("#")[0]).resolve()
        for document in documents()
        for target in LINK.findall(document.read_text(encoding="utf-8"))
        if "://" not in target
    }
    pages = {path.resolve() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(str(path.relative_to(ROOT)) for path in pages - linked) == []
