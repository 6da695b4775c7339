"""The chunks of a streamed answer, put together to the answer that the same request gets whole."""

from typing import Any

from pydantic_core import to_json

WHOLE = {"chat.completion.chunk": "chat.completion"}
_ONCE = frozenset({"role", "type", "id", "name", "index"})  # texts that are said once, and repeated at the most


class Assembly:
    """An answer that grows chunk by chunk. A chunk of an odd shape adds what can be understood of it."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self.error: dict[str, Any] | None = None  # a chunk that says that something went wrong

    def add(self, chunk: dict[str, Any]) -> bool:
        """Take the next chunk; True where something generated is in it."""
        if chunk.get("error"):
            self.error = chunk
            return False
        choices = chunk.get("choices")
        if not self._top or not choices or chunk.get("usage") is not None:  # the others say the same again
            for name, value in chunk.items():
                if name != "choices" and value is not None:
                    self._top[name] = value
        found = False
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                found = self._add_choice(choice) or found
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
        elif _grows_by_text(mine, choice):
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


def _grows_by_text(mine: dict[str, Any], choice: dict[str, Any]) -> bool:
    """Add the delta of nearly every chunk, a piece of text and nothing else; False where it is another."""
    delta, message = choice.get("delta"), mine.get("message")
    if type(delta) is not dict or len(delta) != 1 or message is None or choice.get("finish_reason") is not None:
        return False
    text, before = delta.get("content"), message.get("content")
    if type(text) is not str or not text or type(before) is not str or choice.get("logprobs") is not None:
        return False
    message["content"] = before + text
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
