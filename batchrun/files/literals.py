"""Placeholders of other template languages, which ours sends as literal text: `{name}`, `%(name)s`."""

import re
from collections.abc import Iterable, Iterator

from batchrun.core.variables import variable
from batchrun.core.wording import quoted
from batchrun.errors import Fault

# Jinja2's own blocks, in which a brace is one of its own.
_OWN = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
# {name}, {name!r}, {name:.2f}, {row.name}, {row["name"]}, ${name}; and %(name)s. Not the braces of JSON: {"name": ...}.
_BRACES = re.compile(r"\{\s*(?:row\s*(?:\.|\[\s*['\"]?))?([^{}'\"\[\]:!\n]+?)\s*['\"]?\s*\]?\s*(?:[:!][^{}\n]*)?\}")
_VARIABLE = re.compile(r"\{\{\s*(?:row\s*(?:\.|\[\s*['\"]?))?([^{}'\"\[\]|]+?)\s*['\"]?\s*\]?\s*(?:\|[^{}]*)?\}\}")
_PERCENT = re.compile(r"%\(([^()\n]+)\)[-#0 +]*[\d.]*[a-z]")


def literals_in(text: str, names: Iterable[str]) -> list[tuple[str, str]]:
    """Return (what is written, field) of the placeholders that name a field of the rows, once each, in their order."""
    fields = set(names)
    rest = _OWN.sub(" ", text)
    found = {match[1]: match[0] for pattern in (_BRACES, _PERCENT) for match in reversed([*pattern.finditer(rest)])}
    known = sorted((rest.index(written), written, name) for name, written in found.items() if name in fields)
    return [(written, name) for _, written, name in known]


def literal_warnings(
    names: Iterable[str], *, template: str | None, system: str | None, at_template: str, at_system: str
) -> Iterator[Fault]:
    """Warn of every placeholder in a spec's texts that would be sent as it stands.

    Args:
        names: the fields of the rows; none where the input holds requests.
        at_template: where `prompt_template` stands in the spec.
        at_system: where `system` does.
    """
    names = list(names)
    for written, name in literals_in(template or "", names):
        what = f"'prompt_template' holds {quoted(written)}, which is sent as it stands: the rows have such a field"
        yield Fault(at_template, what, f"write {variable(name)} to send its value")
    own = [(f"{{{{ {match[1]} }}}}", match[1]) for match in _VARIABLE.finditer(system or "") if match[1] in names]
    for written, name in [*own, *literals_in(system or "", names)]:
        what = f"'system' holds {quoted(written)}, which is sent as it stands: only prompt_template is a template"
        yield Fault(at_system, what, f"write {variable(name)} into prompt_template")
