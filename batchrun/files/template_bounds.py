"""Bounds on what a template may do: steps, and characters made. A template is data, and must not take the machine."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

from jinja2 import Template, nodes
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from batchrun.files.lines import MAX_LINE_BYTES

MOST_CHARS = MAX_LINE_BYTES  # made by one rendering, all its pieces together
MOST_STEPS = 300_000  # of one rendering: rounds of loops, calls, entries of lists
MOST_WIDTH = 10_000  # that a text may be filled up to
MOST_BITS = 100_000  # of a whole number
# Filters and methods that make much out of little, by a number.
_FILLING = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "batch", "slice", "tojson", "to_bytes"}
)
_FORMATTING = frozenset({"format", "format_map"})
_TOLD = re.compile(r"\*|\{[^}]*\{")  # a width that stands among the values
_WIDE = re.compile(r"\d{5,}")
# Names that no template can write.
_ROUNDS, _JOINED, _BUILT = " rounds", " joined", " built"


class TooMuch(Exception):
    """A template would make or do more than one rendering may."""


@dataclass
class _Budget:
    """What is left of one rendering's steps and characters. Each is taken before the thing is done."""

    steps: int = MOST_STEPS
    chars: int = MOST_CHARS

    def step(self, count: int = 1) -> None:
        self.steps -= count
        if self.steps < 0:
            raise TooMuch(f"goes on for more than {MOST_STEPS:,} steps")

    def make(self, chars: int) -> None:
        self.chars -= chars
        if self.chars < 0:
            raise TooMuch(f"makes more than {MOST_CHARS >> 20} MiB of text")

    def weigh(self, value: Any, *, times: int = 1) -> None:
        """Pay for all that a value holds, as often as it holds it: shared entries are small only in memory."""
        if isinstance(value, str | bytes):
            self.make(len(value) * times)
        elif isinstance(value, Mapping):
            self.step(max(1, len(value) * times))
            for entry in value.values():
                self.weigh(entry, times=times)
        elif isinstance(value, list | tuple):
            self.step(max(1, len(value) * times))
            for entry in value:
                self.weigh(entry, times=times)


_budget: ContextVar[_Budget] = ContextVar("budget")


def render_bounded(template: Template, values: dict[str, Any]) -> str:
    """Render a template of a `BoundedEnvironment`.

    Raises:
        TooMuch: it would make or do too much.
        Exception: whatever else a template does.
    """
    token = _budget.set(_Budget())
    try:
        return template.render(values)
    finally:
        _budget.reset(token)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, in which whatever makes much out of little is counted first.

    While a template is compiled there is no budget: what needs one is left for the rendering.
    """

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(optimized=False, **options)
        self.globals.clear()  # a field called "range" or "dict" is a field, and a missing one is missing
        for name, function in list(self.filters.items()):
            self.filters[name] = _counted(name, function)
        self.filters |= {_ROUNDS: _rounds, _JOINED: _joined, _BUILT: _built}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Counting().visit(super()._parse(source, name, filename))
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute one of the intercepted operators."""
        if operator == "%" and isinstance(left, str | bytes):
            _check_format(left, right if isinstance(right, tuple) else (right,))
        elif operator != "%":
            _check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a macro, or a method of a value."""
        _budget.get().step()
        if isinstance(__obj, Macro):
            _budget.get().weigh([*args, *kwargs.values()])
        else:
            method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps `format`
            args = _checked(getattr(method, "__name__", ""), getattr(method, "__self__", None), args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Put the pieces of a text together, as far as there is room for them."""
        budget, kept = _budget.get(), []
        for part in parts:
            budget.make(len(part))
            kept.append(part)
        return "".join(kept)


class _Counting(NodeTransformer):
    """Sends loops, lists and joined texts of a template through filters that count."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _through(_ROUNDS, node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _through(_JOINED, nodes.List(node.nodes, lineno=node.lineno))

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _through(_BUILT, node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _through(_BUILT, node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _through(_BUILT, node) if node.ctx == "load" else node


def _through(name: str, value: Any) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


# -- filters of our own -----------------------------------------------------------------------------------------------


def _rounds(values: Iterable[Any]) -> Iterator[Any]:
    budget = _budget.get()
    for value in values:
        budget.step()
        yield value


def _joined(values: list[Any]) -> str:
    return BoundedEnvironment.concat(map(str, values))


def _built(value: Any) -> Any:
    _budget.get().weigh(value)
    return value


# -- what makes much out of little ------------------------------------------------------------------------------------


def _counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter of Jinja2's that is checked before it is used, and whose text is paid for."""
    is_told = getattr(function, "jinja_pass_arg", None) is not None  # then the value comes second

    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        budget = _budget.get()
        budget.step()
        first = 1 if is_told else 0
        value, rest = args[first], args[first + 1 :]
        if name == "join" and not isinstance(value, str | list | tuple | Mapping):
            value = list(value)
        rest = _checked(name, value, rest, kwargs)
        made = function(*args[:first], value, *rest, **kwargs)
        if isinstance(made, str) and made is not value:
            budget.make(len(made))
        return made

    return counted


def _checked(name: str, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Refuse a use of a filter or method that would make too much, before it does; return its arguments."""
    given = [*args, *kwargs.values()]
    if name in _FILLING:
        width = max((abs(one) for one in given if isinstance(one, int)), default=0)
        if width > MOST_WIDTH:
            raise TooMuch(f"fills up to {width:,}, and may to {MOST_WIDTH:,}")
        lines = 1 + sum(map(value.count, ("\n", "\t"))) if isinstance(value, str) else len(str(value)) // 2 + 1
        _budget.get().make(width * lines)
    elif name in _FORMATTING and isinstance(value, str):
        _check_format(value, given)
    elif name == "replace" and len(given) >= 2 and all(isinstance(one, str) for one in (value, *given[:2])):
        _budget.get().make(value.count(given[0]) * len(given[1]))
    elif name == "join":
        return _check_join(name, value, args, kwargs)
    return args


def _check_join(name: str, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    if isinstance(value, str) and args and not isinstance(args[0], str):  # the text's own method
        parts = list(args[0])
        _budget.get().make(len(value) * len(parts) + sum(len(one) for one in parts if isinstance(one, str)))
        return (parts, *args[1:])
    separator = next((one for one in (*args, *kwargs.values()) if isinstance(one, str)), "")
    _budget.get().make(len(separator) * len(value))
    return args


def _check_format(text: str | bytes, given: Iterable[Any]) -> None:
    """Refuse a wide field, and pay for every value in every field: each may be written in all of them."""
    shown = text if isinstance(text, str) else text.decode("latin-1")
    given = list(given)
    is_told = _TOLD.search(shown) is not None
    if _WIDE.search(shown) or (is_told and any(isinstance(one, int) and abs(one) > MOST_WIDTH for one in given)):
        raise TooMuch(f"fills a field wider than {MOST_WIDTH:,}")
    fields = shown.count("%") + shown.count("{")
    _budget.get().make(fields * MOST_WIDTH if is_told else 0)
    for one in given:
        _budget.get().weigh(one, times=max(1, fields))


def _check_operator(operator: str, left: Any, right: Any) -> None:
    budget = _budget.get()
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * max(right, 0) if operator == "**" else left.bit_length() + right.bit_length()
        if bits > MOST_BITS:
            raise TooMuch(f"makes a number of more than {MOST_BITS:,} bits")
    elif operator == "+":
        if isinstance(left, list | tuple | str | bytes):
            budget.weigh([left, right])
    elif operator == "*":
        value, times = (left, right) if isinstance(right, int) else (right, left)
        if isinstance(times, int) and isinstance(value, list | tuple | str | bytes):
            budget.weigh(value, times=max(0, times))
