"""The chunks of a streamed answer, put together to the answer that the same request gets whole."""

from typing import Any, NamedTuple

from pydantic_core import to_json

WHOLE = {"chat.completion.chunk": "chat.completion"}
_ONCE = frozenset({"role", "type", "id", "name", "index"})  # texts that are said once, and repeated at the most


class Grown(NamedTuple):
    """That one text of the answer has become longer."""

    whole: dict[str, Any]  # in which it stands
    name: str
    text: str  # that was added


class Assembly:
    """An answer that grows chunk by chunk. A chunk of an odd shape adds what can be understood of it."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self.grown: Grown | None = None  # what the last chunk did, if it is nothing else
        self.error: dict[str, Any] | None = None  # a chunk that says that something went wrong

    def add(self, chunk: dict[str, Any]) -> bool:
        """Take the next chunk; True where something generated is in it."""
        choices, top = chunk.get("choices"), self._top
        self.grown = None
        if chunk.get("error"):
            self.error = chunk
            return False
        if not top or not choices or chunk.get("usage") is not None:  # the others say the same again
            for name, value in chunk.items():
                if name != "choices" and value is not None:
                    top[name] = value
        found, these = False, choices if isinstance(choices, list) else []
        for choice in these:
            if isinstance(choice, dict):
                found = self._add_choice(choice) or found
        if len(these) > 1:
            self.grown = None
        return found

    @property
    def is_finished(self) -> bool:
        """True once every choice that was begun has said how it ended."""
        return bool(self._choices) and all(one.get("finish_reason") for one in self._choices.values())

    def whole(self) -> bytes:
        """Return the answer's JSON; of a stream that brought an error, the error's."""
        if self.error is not None:
            return to_json(self.error)
        kind = self._top.get("object")
        named = self._top | ({"object": WHOLE.get(kind, kind)} if isinstance(kind, str) else {})
        choices = [self._choices[index] for index in sorted(self._choices)]
        usage = {"usage": named.pop("usage")} if "usage" in named else {}
        return to_json({**named, "choices": choices, **usage})

    def _add_choice(self, choice: dict[str, Any]) -> bool:
        index = choice.get("index")
        number = index if isinstance(index, int) else 0
        mine = self._choices.get(number)
        if mine is None:
            mine = self._choices[number] = {"index": number}
        elif self._grows_by_text(mine, choice):
            return True
        found = False
        for name, value in choice.items():
            if name == "delta" and isinstance(value, dict):
                message = mine.setdefault("message", {"role": "assistant", "content": None})
                found = _grow(message, value) or found
            elif name == "text" and isinstance(value, str):
                mine["text"] = mine.get("text", "") + value
                found = found or bool(value)
            elif name == "logprobs" and isinstance(value, dict):
                _grow(mine.setdefault("logprobs", {}) if mine.get("logprobs") is not None else _fresh(mine), value)
            elif value is not None or name not in mine:
                mine[name] = value
        return found

    def _grows_by_text(self, mine: dict[str, Any], choice: dict[str, Any]) -> bool:
        """Add what nearly every chunk is, a piece of text and nothing else; False where it is another."""
        if list(choice.values()).count(None) != len(choice) - 2:
            return False  # more than its number and a piece
        delta = choice.get("delta")
        if type(delta) is dict and len(delta) == 1:
            text, whole, name = delta.get("content"), mine.get("message"), "content"
        else:
            text, whole, name = choice.get("text"), mine, "text"
        if type(text) is not str or not text or whole is None or type(whole.get(name)) is not str:
            return False
        whole[name] += text
        self.grown = Grown(whole, name, text)
        return True


def _fresh(choice: dict[str, Any]) -> dict[str, Any]:
    choice["logprobs"] = {}
    made: dict[str, Any] = choice["logprobs"]
    return made


def _grow(whole: dict[str, Any], part: dict[str, Any]) -> bool:
    """Add a part to a message: texts and lists grow, lists of numbered parts grow part by part; True if it has any."""
    found = False
    for name, value in part.items():
        before = whole.get(name)
        if isinstance(value, str) and name not in _ONCE:
            whole[name] = (before if isinstance(before, str) else "") + value
            found = found or bool(value)
        elif isinstance(value, list):
            _grow_list(whole.setdefault(name, []) if isinstance(before, list) else _new_list(whole, name), value)
            found = found or bool(value)
        elif isinstance(value, dict):
            if not isinstance(before, dict):
                whole[name] = before = {}
            found = _grow(before, value) or found
        elif value is not None:
            whole[name] = value
        else:
            whole.setdefault(name, None)
    return found


def _new_list(whole: dict[str, Any], name: str) -> list[Any]:
    whole[name] = []
    made: list[Any] = whole[name]
    return made


def _grow_list(whole: list[Any], parts: list[Any]) -> None:
    for part in parts:
        number = part.get("index") if isinstance(part, dict) else None
        mine = next((one for one in whole if isinstance(one, dict) and one.get("index") == number), None)
        if number is None or mine is None:
            whole.append(dict(part) if isinstance(part, dict) else part)
        else:
            _grow(mine, part)
