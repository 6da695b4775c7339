"""Reports: one content in every form, and nothing of what others wrote is obeyed in any of them."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from batchrun.bench.report.build import build_report
from batchrun.bench.report.content import Report, Section, table
from batchrun.bench.report.data import to_csv, to_values
from batchrun.bench.report.markdown import to_markdown
from batchrun.bench.report.page import to_html
from batchrun.bench.subject import Subject
from batchrun.core.measuring.document import Measurement, Series
from tests.bench.measurements import group_of, ladder, measurement_of, run_of

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> | `x` [a](javascript:alert(3)) \x1b[31m \u202e"
VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """A page's tags with their attributes, checked to be nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.words = ""
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def measured() -> Measurement:
    return measurement_of(ladder())


def titles(report: Report) -> list[str]:
    return [section.title for section in report.sections]


def test_a_ladder_is_told_by_its_knee(measured: Measurement) -> None:
    report = build_report(measured)
    assert report.verdict.startswith("turbo-opt brings 652 output tokens/s at concurrency 8, with a p95 of 682 ms")
    assert report.is_good is True
    assert titles(report) == [
        "Setup", "Loads", "Diagnosis", "Where the time goes", "Reliability", "Server, GPU and client", "Definitions",
    ]  # fmt: skip


def test_a_saturated_client_is_the_verdict() -> None:
    busy = {"client.cpu_share": Series("share", (0.0, 1.0, 2.0), (1.0, 1.0, 0.4))}
    report = build_report(measurement_of([run_of(observations=busy)]))
    assert report.verdict == ("This is no measurement of the server: the client itself was saturated in 1 of 1 run.")
    assert report.is_good is False


def test_warnings_that_differ_in_their_numbers_alone_are_told_once() -> None:
    runs = [run_of(round_no=no, warnings=[f"the client waited for {no}0%", "odd"][: 3 - no]) for no in (1, 2)]
    found = build_report(measurement_of(runs)).warnings
    assert found == ("the client waited for 10% (in 2 of 2 runs)", "odd (in 1 of 2 runs)")


def test_failures_are_in_the_verdict_and_no_percentile_hides_them() -> None:
    failed = dict.fromkeys(range(0, 40, 10), "server_error")
    report = build_report(measurement_of([run_of(failed=failed)]))
    assert report.verdict.endswith("4 of 40 requests failed (10%).")
    page = to_markdown(report)
    assert re.search(r"\| concurrency 4 \| 5\d\d \| failed \| failed \| failed \|", page), page


def test_two_groups_without_a_clear_difference_are_called_equal() -> None:
    runs = [*ladder(group="A"), *ladder(group="B")]
    assert build_report(measurement_of(runs)).verdict.startswith("There is no clear difference between A and B")
    faster = [*ladder(group="A"), *ladder(group="B", speed=1.5)]
    assert re.search(r"\d\d\.\d% \w+ output throughput of B at", build_report(measurement_of(faster)).verdict)


def test_a_page_fetches_nothing_runs_nothing_and_is_well_formed(measured: Measurement) -> None:
    page = Page(to_html(build_report(measured)))
    assert not {"script", "iframe", "object", "img"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith(("#", "data:")), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert "http-equiv" in page.tags[5][1] or any("http-equiv" in attributes for _, attributes in page.tags)


def hostile() -> Iterator[Report]:
    group = group_of(base_url=HOSTILE, model=HOSTILE, params={HOSTILE: HOSTILE})
    failed = dict.fromkeys(range(3), HOSTILE)
    made = measurement_of([run_of(failed=failed, warnings=[HOSTILE])], groups=[group])
    yield build_report(replace(made, id=HOSTILE, warnings=(HOSTILE,)))
    shown = table(HOSTILE, (HOSTILE, HOSTILE), [(HOSTILE, HOSTILE)], note=HOSTILE)
    section = Section(HOSTILE, "x", (HOSTILE,), ((HOSTILE, HOSTILE),), (shown,), (), ((HOSTILE, HOSTILE),))
    yield Report(HOSTILE, HOSTILE, None, (HOSTILE,), (section,), HOSTILE)


@pytest.mark.parametrize("report", list(hostile()))
def test_what_others_wrote_is_only_ever_text(report: Report) -> None:
    text = to_html(report)
    page = Page(text)
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert "alert(1)" in page.words
    assert "\x1b" not in text
    assert "\u202e" not in text
    marked = to_markdown(report)
    assert "<script" not in marked.replace("\\<", "")
    assert not re.search(r"(?<!\\)\]\(", marked)
    assert "\x1b" not in marked
    rows = [line for line in marked.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) >= 3 for row in rows)


def test_every_form_says_the_same(measured: Measurement) -> None:
    report, subject = build_report(measured), Subject("r.json", measured)
    values = to_values(subject, report)
    rows = list(csv.DictReader(io.StringIO(to_csv(subject))))
    assert [float(row["level"]) for row in rows] == [load["level"] for load in values["loads"]] == [1, 4, 8, 16, 32]
    for row, load in zip(rows, values["loads"], strict=True):
        assert float(row["p95_e2el"]) == load["figures"]["p95_e2el"]["median"]
    assert values["verdict"] == report.verdict
    assert report.verdict.rstrip(".") in to_markdown(report).replace("\\", "")


def test_the_table_of_the_field_has_its_columns_and_the_gpus_memory(measured: Measurement) -> None:
    loads = next(section for section in build_report(measured).sections if section.id == "loads")
    shown = next(one for one in loads.tables if one.title == "Experiments")
    assert shown.columns == (
        "group", "concurrency", "requests", "mean latency (s)", "output tokens", "tokens/s", "memory",
    )  # fmt: skip
    assert shown.rows[2][:3] == ("A", "8", "120")
    assert shown.rows[2][-1] == "40.0 GiB"


def test_the_share_of_prompts_from_a_cache_is_the_growth_of_the_servers_counters(measured: Measurement) -> None:
    beside = next(section for section in build_report(measured).sections if section.id == "server")
    shown = {row[1]: row for row in beside.tables[0].rows}
    assert shown["Prompt tokens from a cache"][2:4] == ("5%", "5%")


def test_ranges_over_rounds_and_thin_percentiles_are_shown_as_what_they_are(measured: Measurement) -> None:
    text = to_markdown(build_report(measured))
    assert re.search(r"\d+ \(\d+ to \d+\)\\\*", text)
    assert "fewer than five values lie beyond" in text
