"""Frozen values that are made by plain assignments."""

from dataclasses import dataclass, field, fields, replace

import pytest

from batchrun.core.outcome import NO_USAGE, Usage
from batchrun.core.quick import quick


@quick
@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    names: list[str] = field(default_factory=list)


def test_a_quick_value_is_made_compared_hashed_and_replaced_like_any_other() -> None:
    assert Point(1) == Point(x=1, y=2, names=[])
    assert Point(1, names=["a"]) != Point(1)
    assert Point(1).names is not Point(1).names
    assert replace(Point(1), y=5) == Point(1, 5)
    assert repr(Point(1)) == "Point(x=1, y=2, names=[])"
    assert hash(Usage(1, 2)) == hash(Usage(1, 2))
    assert [one.name for one in fields(Point(1))] == ["x", "y", "names"]
    with pytest.raises(TypeError, match="x"):
        Point()  # type: ignore[call-arg]


def test_it_has_its_slots_and_no_room_for_more() -> None:
    with pytest.raises(AttributeError):
        NO_USAGE.more = 1  # type: ignore[attr-defined]
