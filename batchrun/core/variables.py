"""How a template names a field of a row."""

from collections.abc import Iterable

IDS = ("custom_id", "id")  # fields that name a row, and ask nothing
_LIKE_PROMPTS = ("prompt", "question", "text", "instruction", "input", "content", "query")
# Words that a template takes for its own.
_NO_VARIABLE = frozenset({"row", "and", "or", "not", "in", "is", "if", "else", "true", "false", "none"})


def variable(name: str) -> str:
    """Write a field as a template names it; single quotes need no escape in a JSON spec."""
    is_name = name.isidentifier() and name.lower() not in _NO_VARIABLE
    return f"{{{{ {name} }}}}" if is_name else f"{{{{ row[{name!r}] }}}}"


def example_variable(names: Iterable[str]) -> str:
    """Write the field that a first template would name: the one called like a prompt, else the first."""
    fields = [name for name in names if name and name not in IDS]
    likely = [name for word in _LIKE_PROMPTS for name in fields if word in name.lower()]
    return variable(next(iter([*likely, *fields]), "field"))
