"""The scenes in which processes are made to die: what a user types, before the death, in it, and after it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab import Lab

CONCURRENCY, TRIAL = 4, 4
TASK = "batch-001"
SUBMIT = ("submit", "jobs/job.json")
RESUME = ("resume", TASK)


@dataclass(frozen=True)
class Step:
    """One command, and where it dies, if it is to die."""

    command: tuple[str, ...]
    dies_at: tuple[str, int] | None = None
    first: Callable[[Lab], object] | None = None  # what is done to the folder before it


@dataclass(frozen=True)
class Scene:
    """A command in which a process is to die, with a story around it."""

    name: str
    command: tuple[str, ...]
    before: tuple[Step, ...] = ()
    again: tuple[tuple[str, ...], ...] = (RESUME,)  # what a user types after the death, in turn
    policies: tuple[str, ...] = ("hold", "retry")
    backends: tuple[str, ...] = ("sqlite", "postgres")
    concurrency: int = CONCURRENCY
    faults: dict[str, float] = field(default_factory=dict)


def _change_input(lab: Lab) -> None:
    """Change a line, take one away and add two."""
    path = lab.folder / "inputs" / "in.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace("hello", "good evening")
    new = [lines[0].replace("a00000", f"a{len(lines) + more:05d}") for more in (0, 1)]
    path.write_text("".join(lines[:-1] + new))


def moved_to(folder: Path) -> str:
    """Return where the scene of the move moves a folder's ledger."""
    return f"sqlite:///{folder}/elsewhere/ledger.db"


ACCEPT = (*SUBMIT, "--accept-changes", "-y")
PURGE = ("purge", TASK, "-y")
MOVE = ("db", "move", "--to", "{elsewhere}")
RECONCILE = ("reconcile", TASK, "--retry", "-y")
REOPEN = ("resume", TASK, "--cancelled")
FAULTY = {"error_rate": 0.1, "rate_limit_rate": 0.15, "reset_rate": 0.05}

SCENES = {
    scene.name: scene
    for scene in (
        Scene("run", SUBMIT, faults=FAULTY),
        # The first process dies with answers in its spool that the ledger has not, and with requests out.
        Scene("resume", RESUME, before=(Step(SUBMIT, dies_at=("settle-due", 7)),)),
        Scene("registration", SUBMIT, before=(Step(SUBMIT, dies_at=("register-filled", 1)),), again=(SUBMIT,)),
        Scene(
            "changed input",
            ACCEPT,
            before=(Step(SUBMIT), Step(("status", TASK), first=_change_input)),
            again=(ACCEPT,),
        ),
        Scene(
            "consent",
            RECONCILE,
            before=(Step(SUBMIT, dies_at=("send-begun", 9)), Step(RESUME)),
            policies=("hold",),
        ),
        Scene("policy", RESUME, before=(Step(SUBMIT, dies_at=("send-begun", 9)),), policies=("retry",)),
        # The endpoint refuses half of what comes at once: what is claimed and not sent is given back.
        Scene("throttle", (*SUBMIT, "--no-trial", "-c", "10"), faults={"rate_limit_rate": 0.5}, concurrency=10),
        Scene("cancel", ("cancel", TASK), before=(Step(SUBMIT, dies_at=("settle-known", 7)),), again=(REOPEN, REOPEN)),
        Scene("purge", PURGE, before=(Step(SUBMIT),), again=(PURGE,)),
        Scene(
            "move",
            MOVE,
            before=(Step(SUBMIT, dies_at=("settle-known", 7)),),
            again=(MOVE, RESUME),
            backends=("sqlite",),
        ),
    )
}
