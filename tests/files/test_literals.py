"""Placeholders that our templates send as they stand, and the names of fields that are no single word."""

import json
from pathlib import Path
from typing import Any

import pytest

from batchrun.core.request import Defaults
from batchrun.errors import BadInput
from batchrun.files.inputs import survey
from batchrun.files.literals import literals_in
from batchrun.runner.check import check_text
from tests.core.specs import spec_of

ROW = {"id": "r-1", "title": "Dune", "unit price": 3, "sub-title": "s"}


@pytest.fixture
def said(tmp_path: Path) -> Any:
    """Return a function that tells (what, hint) of all warnings, or of all faults, of a spec with these texts."""
    (tmp_path / "in.jsonl").write_text(json.dumps(ROW) + "\n")

    def look(**texts: str) -> list[tuple[str, str]]:
        spec = spec_of("books", input_file=str(tmp_path / "in.jsonl"), output_file=str(tmp_path / "out.jsonl"), **texts)
        try:
            found = check_text(json.dumps(spec), where="job.json").warnings
        except BadInput as error:
            found = error.faults
        return [(fault.what, fault.hint) for fault in found]

    return look


def test_other_languages_placeholders_are_found_where_they_name_a_field() -> None:
    table = {
        "{title}": ["title"],
        "{ title } and ${title}": ["title"],
        "{title!r} {year:.2f}": ["title", "year"],
        "{row.title} {row['unit price']}": ["title", "unit price"],
        "%(title)s, %(year)05d": ["title", "year"],
        "{unit price}": ["unit price"],
        "{{ title }} {% if title %}{title}{% endif %}": ["title"],
        '{{ title }} {"title": 1} {other} {} {{ "{title}" }} {# {title} #} {% if x == "{title}" %}{% endif %}': [],
    }
    for text, names in table.items():
        assert [name for _, name in literals_in(text, ["title", "year", "unit price"])] == names, text


def test_a_placeholder_that_is_sent_as_it_stands_is_a_warning_with_the_right_one(said: Any) -> None:
    assert said(prompt_template="{{ id }}: {title} {unit price}") == [
        (f"'prompt_template' holds {written}, which is sent as it stands: the rows have such a field", hint)
        for written, hint in (
            ("'{title}'", "write {{ title }} to send its value"),
            ("'{unit price}'", "write {{ row['unit price'] }} to send its value"),
        )
    ]
    for system in ("About {{ title }}", "About {title}", "About {{ row['title'] | upper }}"):
        ((what, hint),) = said(prompt_template="{{ id }}", system=system)
        assert what.endswith("which is sent as it stands: only prompt_template is a template")
        assert hint == "write {{ title }} into prompt_template"
    assert said(prompt_template="{{ title }}", system="Answer as JSON, {braces} too.") == []


def test_a_template_that_names_no_field_is_a_warning(said: Any) -> None:
    ((what, hint),) = said(prompt_template="Who wrote it?")
    assert what.endswith("(they have: id, title, unit price, sub-title): every prompt is the same")
    assert hint == "write {{ title }} into it, say"
    assert said(prompt_template="{{ row | length }}") == []


def test_a_field_that_is_no_single_word_is_told_how_to_reach(said: Any) -> None:
    for written, field in (("{{ unit price }}", "unit price"), ("{{ sub-title }}", "sub-title")):
        ((_, hint),) = said(prompt_template=f"<{written}>")
        assert hint == f"did you mean {{{{ row['{field}'] }}}}? names that are no single word are written so"
        assert said(prompt_template=f"<{{{{ row['{field}'] }}}}>") == []
    ((_, hint),) = said(prompt_template="{{ title if }}")
    assert hint == "see docs/inputs.md; braces as text: {{ '{{' }}"


def test_the_first_item_that_can_be_sent_is_kept_to_be_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("broken\n" + json.dumps(ROW) + "\n" + json.dumps(ROW | {"id": "r-2"}) + "\n")
    defaults = Defaults("m", 64, "/v1/chat/completions", {}, prompt_template="Who wrote {{ title }}?\x1b[31m")
    first = survey(path, defaults).first
    assert first == (2, "r-1", "Who wrote Dune?\x1b[31m")
