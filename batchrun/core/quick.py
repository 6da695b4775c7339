"""Frozen dataclasses of which some are made for every request: as quick to make as others."""

from dataclasses import MISSING, Field, field, fields, make_dataclass
from typing import Any, TypeVar

Value = TypeVar("Value")


def quick(cls: type[Value]) -> type[Value]:
    """Let a frozen dataclass be made by plain assignments: that takes a fifth of the time.

    That nobody changes it afterwards is then the type checker's to see to, for which it stays frozen.
    """
    plain = make_dataclass(cls.__name__, [(one.name, Any, _default(one)) for one in fields(cls)])  # type: ignore[arg-type]
    for name in ("__setattr__", "__delattr__"):
        delattr(cls, name)
    cls.__init__ = plain.__init__  # type: ignore[misc, method-assign]
    return cls


def _default(one: "Field[Any]") -> Any:
    """Return the part of a field that making needs."""
    if one.default_factory is not MISSING:
        return field(default_factory=one.default_factory)
    return field() if one.default is MISSING else field(default=one.default)
