"""A report as one page of HTML: nothing is fetched, nothing runs, and texts of others are only ever text."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from batchrun.bench.report.content import Report
from batchrun.core.printable import visible


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("batchrun.bench.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    return environment.get_template("page.html")


def to_html(report: Report) -> str:
    """Write a report as a page."""
    return _template().render(report=report)
