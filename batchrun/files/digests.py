"""Sets of 8-byte keys that stay small at a million entries: 8 bytes each, and no Python object is kept for any."""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import Any

KEY_BYTES = 8


class Keys(Set[bytes]):
    """An immutable set of 8-byte keys, in order."""

    __slots__ = ("_numbers",)

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._numbers = array("Q", sorted({int.from_bytes(key, "big") for key in keys}))

    @classmethod
    def of_sorted(cls, numbers: "array[int]") -> "Keys":
        """Take over an array of ascending numbers."""
        keys = cls()
        keys._numbers = numbers
        return keys

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> "Keys":  # type: ignore[override]
        return cls(it)

    def index(self, key: bytes) -> int | None:
        """Return the place of a key in the order, from 0; None when it is not in the set."""
        number = int.from_bytes(key, "big")
        place = bisect_left(self._numbers, number)
        return place if place < len(self._numbers) and self._numbers[place] == number else None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and len(key) == KEY_BYTES and self.index(key) is not None

    def __iter__(self) -> Iterator[bytes]:
        return (number.to_bytes(KEY_BYTES, "big") for number in self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class Tally:
    """Keys as they come, to be asked which came more than once."""

    def __init__(self) -> None:
        # By the first byte, so that one part at a time is sorted: a sorted list of all would be five times as large.
        self._parts = [array("Q") for _ in range(256)]

    def add(self, key: bytes) -> None:
        """Count one more occurrence of an 8-byte key."""
        self._parts[key[0]].append(int.from_bytes(key, "big"))

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def counts(self) -> Iterator[tuple[bytes, int]]:
        """Yield each key and how often it came, in the order of the keys."""
        for part in self._parts:
            for number, count in sorted(Counter(part).items()):
                yield number.to_bytes(KEY_BYTES, "big"), count

    def repeated(self) -> Keys:
        """Return the keys that came more than once."""
        found = array("Q")
        for part in self._parts:
            if len(set(part)) < len(part):
                found.extend(sorted(number for number, count in Counter(part).items() if count > 1))
        return Keys.of_sorted(found)
