"""Where in a JSON text a key stands: parsers forget it, and a fault without its line is half a fault."""

import json
import re
from typing import NamedTuple

Path = tuple[str | int, ...]  # of keys, and of places in arrays from 0
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class Spot(NamedTuple):
    """Where a value stands."""

    line_no: int  # of its key, from 1; of an array's element, of itself
    text: str  # as written; of an object or an array only how it begins


class Places:
    """The spots of a JSON text's keys and elements; of a text that is no JSON, of as many as can be made out."""

    def __init__(self, text: str) -> None:
        self.spots: dict[Path, Spot] = {}  # of a key that stands twice, the last
        self.repeated: list[Path] = []  # keys that stand twice in one object, once for each time too many
        self._path: list[str | int] = []
        self._is_key_next: list[bool] = []  # for each open object or array: a key is to come next (never of an array)
        self._key_line_no: int | None = None
        line_no, seen = 1, 0
        for token in _TOKEN.finditer(text):
            line_no += text.count("\n", seen, token.start())
            seen = token.start()
            self._take(token[0], line_no)

    def line_of(self, *path: str | int) -> int | None:
        """Return the line of a key, or else of the nearest thing around it that is there; None where nothing is."""
        while path:
            if spot := self.spots.get(path):
                return spot.line_no
            path = path[:-1]
        return None

    def _take(self, token: str, line_no: int) -> None:
        match token:
            case "{" | "[":
                self._note(token, line_no)
                self._is_key_next.append(token == "{")
                self._path.append("" if token == "{" else 0)
            case "}" | "]":
                if self._path:
                    self._path.pop()
                    self._is_key_next.pop()
            case ",":
                if self._path and isinstance(self._path[-1], int):
                    self._path[-1] += 1
                elif self._path:
                    self._is_key_next[-1] = True
            case ":":
                pass
            case _ if self._is_key_next and self._is_key_next[-1]:
                self._is_key_next[-1] = False
                self._path[-1] = _name(token)
                self._key_line_no = line_no
            case _:
                self._note(token, line_no)

    def _note(self, token: str, line_no: int) -> None:
        path = tuple(self._path)
        is_key = bool(path) and isinstance(path[-1], str)
        if is_key and path in self.spots:
            self.repeated.append(path)
            self.spots = {other: spot for other, spot in self.spots.items() if other[: len(path)] != path}
        self.spots[path] = Spot(self._key_line_no or line_no if is_key else line_no, token)
        self._key_line_no = None


def _name(token: str) -> str:
    """Return the key that a token writes, with its escapes resolved."""
    try:
        return str(json.loads(token))
    except ValueError:
        return token.strip('"')
