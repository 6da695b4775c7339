"""Prompt templates: a row's fields into the text of a prompt, in Jinja2's sandbox."""

import difflib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, UndefinedError
from jinja2.meta import find_undeclared_variables

from batchrun.core.line import LineFault
from batchrun.core.variables import variable
from batchrun.core.wording import clipped, quoted
from batchrun.files.template_bounds import BoundedEnvironment, TooMuch, render_bounded

_OTHERWISE = "write it into the row, or name in prompt_template what the row has"
_ODD_NAMES = "names that are no single word are written so"
_EXPRESSION = re.compile(r"\{\{-?\s*([^{}]*?)\s*-?\}\}")
_ODD_NAME = re.compile(r"(?!.*\b(?:if|else|and|or|not|in|is)\b)\w+(?:[ .\-/#?]+\w+)*[#?%$]?")
_UNDEFINED = re.compile(r"'([^']+)' is undefined")


class TemplateFault(Exception):
    """A text that is no template; `line_no` counts within the text, from 1."""

    def __init__(self, what: str, line_no: int, hint: str) -> None:
        super().__init__(what)
        self.line_no = line_no
        self.hint = hint


class _Null(Exception):
    """The template would write a null."""


class Template:
    """A compiled template. The row's fields are its variables, and `row` is all of them."""

    def __init__(self, source: str) -> None:
        """Compile it.

        Raises:
            TemplateFault: it is no template.
        """
        environment = BoundedEnvironment(
            undefined=StrictUndefined, finalize=_written, keep_trailing_newline=True, autoescape=False
        )
        try:
            self._template = environment.from_string(source)
            self.names = frozenset(find_undeclared_variables(environment.parse(source)))
        except TemplateSyntaxError as error:
            raise TemplateFault(str(error.message), error.lineno, _way_out(source)) from None
        except (RecursionError, ArithmeticError, ValueError, MemoryError) as error:
            raise TemplateFault(f"it cannot be compiled: {type(error).__name__}", 1, "make it simpler") from None

    @classmethod
    def of(cls, source: str) -> "Template":
        """Return the template of this text, compiled once.

        Raises:
            TemplateFault: it is no template.
        """
        return _compiled(source)

    def render(self, row: Mapping[str, Any]) -> str:
        """Return the prompt for one row. Values that are no text are written as JSON.

        Raises:
            LineFault: a field is missing or null, the template fails on this row, or nothing comes of it.
        """
        try:
            prompt = render_bounded(self._template, {"row": row, **row})
        except UndefinedError as error:
            raise _missing(str(error), row) from None
        except _Null:
            raise self._null(row) from None
        except TooMuch as error:
            raise LineFault(f"is too much for prompt_template, which {error}", "make the template simpler") from None
        except Exception as error:  # whatever a template does with a row: divide by zero, recurse, be refused
            what = f"cannot be rendered by prompt_template: {clipped(str(error))}"
            raise LineFault(what, "mend the row, or let prompt_template ask for such rows with {% if %}") from None
        if not prompt or prompt.isspace():
            raise LineFault("gives an empty prompt", "fill in the fields that prompt_template uses")
        return prompt

    def _null(self, row: Mapping[str, Any]) -> LineFault:
        names = [name for name in sorted(self.names) if name in row and row[name] is None]
        what = f"field {quoted(names[0])} is null" if names else "a value that prompt_template writes is null"
        value = variable(names[0] if names else "field")[3:-3]
        return LineFault(what, f"fill it in, or write {{{{ {value} or '' }}}} in prompt_template")


@lru_cache(maxsize=16)
def _compiled(source: str) -> Template:
    return Template(source)


def _written(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if value is None:
        raise _Null
    if isinstance(value, bool | list | tuple | dict):
        return json.dumps(value, ensure_ascii=False)
    return value


def _missing(message: str, row: Mapping[str, Any]) -> LineFault:
    found = clipped(", ".join(row)) or "none"
    if name := _UNDEFINED.search(message):
        what = f"has no field {quoted(name[1])}, which prompt_template uses (fields found: {found})"
        return LineFault(what, _meant(name[1], row) or _OTHERWISE)
    return LineFault(f"does not fit prompt_template: {clipped(message)} (fields found: {found})", _OTHERWISE)


def _meant(name: str, row: Mapping[str, Any]) -> str | None:
    """Say which field may be meant: one of a similar name, or one of several words, of which a template read one."""
    if close := difflib.get_close_matches(name, row, n=1, cutoff=0.6):
        return f"did you mean {variable(close[0])}?"
    around = (one for one in row if not one.isidentifier() and name in re.split(r"\W+", one))
    return next((f"did you mean {variable(one)}? {_ODD_NAMES}" for one in around), None)


def _way_out(source: str) -> str:
    """Say what to do about a text that is no template, where it seems to name a field of several words."""
    odd = next((match[1] for match in _EXPRESSION.finditer(source) if _ODD_NAME.fullmatch(match[1])), None)
    return f"did you mean {variable(odd)}? {_ODD_NAMES}" if odd else "see docs/inputs.md; braces as text: {{ '{{' }}"
