"""The ids of items: one's own, or made of the content and how often it came before; never the same id twice."""

from array import array
from hashlib import blake2b

from batchrun.core.line import LineFault
from batchrun.core.request import Draft
from batchrun.core.wording import quoted
from batchrun.files.digests import KEY_BYTES, Keys, Tally


def id_key(custom_id: str) -> bytes:
    """Return the 8 bytes by which an id is counted."""
    return blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def made_up_id(content_key: bytes, occurrence: int) -> str:
    """Return the id of a line without one: it stays the same wherever in the file the line stands."""
    return f"auto-{content_key.hex()}-{occurrence}"


def stand_in_id(line_no: int) -> str:
    """Return the id of a faulty line without a usable one."""
    return f"line-{line_no}"


class Census:
    """What one pass over the file learns about ids; it names the few that need a second look."""

    def __init__(self) -> None:
        self._ids = Tally()
        self._contents = Tally()
        self._has_auto_like = False

    def add_id(self, custom_id: str) -> None:
        """Count an id that a line has or was given."""
        self._ids.add(id_key(custom_id))
        self._has_auto_like = self._has_auto_like or custom_id.startswith("auto-")

    def add_content(self, content_key: bytes) -> None:
        """Count a line that has no id."""
        self._contents.add(content_key)

    def add_made_up_ids(self) -> None:
        """Count the ids that will be made up, where the file has ids of its own that look like them."""
        if self._has_auto_like and len(self._contents):
            for key, count in self._contents.counts():
                for occurrence in range(1, count + 1):
                    self._ids.add(id_key(made_up_id(key, occurrence)))

    def repeated_ids(self) -> Keys:
        """Return the keys of ids that came more than once; two different ids may share one, once in 10^13 files."""
        return self._ids.repeated()

    def repeated_contents(self) -> Keys:
        """Return the content keys of more than one line without an id."""
        return self._contents.repeated()


class Names:
    """Gives the items of one pass their ids, in file order."""

    def __init__(self, *, repeated_ids: Keys, repeated_contents: Keys) -> None:
        self._ids = repeated_ids
        self._first_lines = array("Q", bytes(8 * len(repeated_ids)))  # the line of each repeated id, 0 before it came
        self._hashes = array("q", bytes(8 * len(repeated_ids)))  # a second, independent digest of the id that came
        self._contents = repeated_contents
        self._occurrences = array("L", bytes(array("L").itemsize * len(repeated_contents)))

    def settle(self, found: Draft | LineFault, line_no: int) -> tuple[str, LineFault | None]:
        """Return the id under which a line is recorded, and what is wrong with the line: perhaps that id itself.

        A faulty line keeps its own id when that is usable and was not used before; else it gets "line-<n>".
        """
        if isinstance(found, LineFault):
            if found.custom_id is not None and self._claim(found.custom_id, line_no) is None:
                return found.custom_id, found
            return self._stand_in(line_no), found
        custom_id = found.custom_id or self._make_up(found.content_key)
        first_line = self._claim(custom_id, line_no)
        if first_line is None:
            return custom_id, None
        what = f"custom_id {quoted(custom_id)} was already used on line {first_line}"
        return self._stand_in(line_no), LineFault(what, "ids must be unique within a job")

    def _claim(self, custom_id: str, line_no: int) -> int | None:
        """Note that the id stands on this line; return the earlier line that has it, if there is one."""
        if not self._ids or (place := self._ids.index(id_key(custom_id))) is None:
            return None
        if not self._first_lines[place]:
            self._first_lines[place] = line_no
            self._hashes[place] = hash(custom_id)
        elif self._hashes[place] == hash(custom_id):
            return self._first_lines[place]
        return None

    def _stand_in(self, line_no: int) -> str:
        name = stand_in_id(line_no)
        return f"{name}-rejected" if id_key(name) in self._ids else name

    def _make_up(self, content_key: bytes) -> str:
        place = self._contents.index(content_key) if self._contents else None
        if place is None:
            return made_up_id(content_key, 1)
        self._occurrences[place] += 1
        return made_up_id(content_key, self._occurrences[place])
