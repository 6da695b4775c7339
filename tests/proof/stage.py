"""Where a job is played: its folder, its endpoint, and the processes that a user starts there, all of them forks."""

import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from batchrun.mock.config import MockConfig
from batchrun.mock.server import render_base_url
from tests.lab import QUICK, Lab, become_batchrun
from tests.proof.forks import fork, fork_endpoint, kill, wait
from tests.proof.points import Board, find_points, use

# "unexpected" is our word for a fault of ours; libpq says "unexpectedly" of a server that has hung up, as it does here
# on a process that was stopped in a transaction.
COMPLAINT = re.compile(r"Traceback|\bunexpected\b")
PATIENCE_S = 120.0  # for what takes a second or two where nothing else runs
DIED = -9


@dataclass
class Actor:
    """One `batchrun` process; `code` is its exit code once it has ended."""

    command: tuple[str, ...]
    pid: int
    board: Board
    err_path: Path
    code: int | None = None

    def is_alive(self) -> bool:
        """Look whether it has ended; then its code is known."""
        if self.code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end and return its exit code.

        Raises:
            TimeoutError: it did not end, and was killed; with what it had said.
        """
        if self.code is None:
            try:
                self.code = wait(self.pid, timeout_s=timeout_s)
            except TimeoutError as error:
                self.code = DIED
                raise TimeoutError(f"{' '.join(self.command)}: {error}\n{self.said}") from None
        return self.code

    def signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    @property
    def said(self) -> str:
        """The end of what it wrote to stderr."""
        return self.err_path.read_text()[-3000:] if self.err_path.exists() else ""


class Stage:
    """A folder with its mock endpoint, which is there while the block lasts. What opens anything does so in a fork."""

    def __init__(self, lab: Lab, settings: Mapping[str, Any], *, env: Mapping[str, str] | None = None) -> None:
        """Make a stage.

        Args:
            settings: of the endpoint.
            env: more variables for every process.
        """
        self.lab = lab
        self.actors: list[Actor] = []
        self._settings, self._env = settings, dict(env or {})
        self._endpoint: int | None = None

    def __enter__(self) -> Self:
        config = MockConfig(log_path=str(self.lab.log), **self._settings)
        self._endpoint, port = fork_endpoint(config)
        self.lab.base_url = render_base_url(config.host, port)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for actor in self.actors:
            actor.signal(signal.SIGKILL)
            actor.wait()
        assert self._endpoint is not None
        kill(self._endpoint)

    def start(
        self,
        command: tuple[str, ...],
        dies_at: tuple[str, int] | None = None,
        *,
        before: Callable[[], None] | None = None,
    ) -> Actor:
        """Start `batchrun COMMAND...`.

        Args:
            dies_at: let it die at the n-th hit of a point.
            before: called in the process first, to limit it.
        """
        board = Board(list(find_points()), dies_at)
        lab, number = self.lab, len(self.actors) + 1
        out, err = (lab.folder / f"run-{number}.{name}" for name in ("out", "err"))
        env = QUICK | self._env | {"OPENAI_BASE_URL": lab.base_url or ""}
        if lab.db is not None:
            env["BATCHRUN_DB"] = lab.db
        use(board)
        try:
            pid = fork(lambda: become_batchrun(list(command), str(lab.folder), env, str(out), str(err), before))
        finally:
            use(None)
        self.actors.append(Actor(command, pid, board, err))
        return self.actors[-1]

    def apart(self, look: Callable[[], Any]) -> Any:
        """Do something in a fork, and return what it returns: nothing that it opens stays open here."""
        path = self.lab.folder / "apart.json"
        code = wait(fork(lambda: path.write_text(json.dumps(look()))), timeout_s=PATIENCE_S)
        assert code == 0, f"{look} ended with {code}"
        return json.loads(path.read_text())

    def complaints(self) -> list[str]:
        """Return what processes said that none may say."""
        said = ((path.name, path.read_text()) for path in sorted(self.lab.folder.glob("run-*.err")))
        return [f"{name}: {text[-3000:]}" for name, text in said if COMPLAINT.search(text)]
