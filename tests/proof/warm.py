"""A warm start for forks: what a job compiles of SQL is compiled once, before the first fork, and not in each run.

Most of what a short `batchrun` process costs is the compiling of its statements: SQLAlchemy keeps what comes of it with
an engine, and each process makes its own. Here all engines of a kind share one cache, and the process that forks the
runs has performed a job itself, in a folder that is gone. It holds nothing open any more, which is asserted.
"""

import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from batchrun.ledger import engines
from batchrun.mock.config import MockConfig
from batchrun.mock.server import render_base_url
from tests.lab import QUICK, Lab
from tests.proof.forks import fork_endpoint, kill

_create = engines.create_engine
_caches: dict[str, Any] = {}
ITEMS = 8


def _create_engine(*arguments: Any, **options: Any) -> Engine:
    engine: Engine = _create(*arguments, **options)
    engine._compiled_cache = _caches.setdefault(engine.dialect.name, engine._compiled_cache)
    return engine


def _share_statements() -> None:
    """Let all engines of a kind have one cache: its keys name the dialect, and two of a kind are alike here."""
    for kind in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        kind.__eq__ = lambda one, other: type(one) is type(other)  # type: ignore[assignment, method-assign]
        kind.__hash__ = lambda one: hash(type(one))  # type: ignore[assignment, method-assign]
    engines.create_engine = _create_engine


def warm_up(*addresses: str | None) -> None:
    """Perform a small job on each of these ledgers (None: a new SQLite file), in this process.

    Raises:
        AssertionError: it did not end well, or left something open.
    """
    _share_statements()
    before = _open_files()
    for address in addresses:
        with TemporaryDirectory(prefix="warm-") as folder:
            _perform(Lab(Path(folder), log=Path(folder) / "requests.jsonl", db=address))
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, threading.enumerate()
    assert _open_files() <= before, _open_files() - before


def _perform(lab: Lab) -> None:
    lab.write_input(ITEMS)
    lab.write_spec(concurrency=4, trial={"size": 2})
    config = MockConfig(log_path=str(lab.log), error_rate=0.2, reset_rate=0.2, faults_per_item=1)
    pid, port = fork_endpoint(config)
    env = QUICK | {"OPENAI_BASE_URL": render_base_url(config.host, port)} | ({"BATCHRUN_DB": lab.db} if lab.db else {})
    here, variables = Path.cwd(), dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        os.chdir(lab.folder)
        os.environ.update(env)
        for arguments in (("submit", "jobs/job.json"), ("resume", "batch-001"), ("reconcile", "batch-001", "--fail")):
            assert _type(arguments) in (0, 3, 6), arguments
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(variables)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        sys.unraisablehook = sys.__unraisablehook__
        kill(pid)


def _type(arguments: Sequence[str]) -> int:
    from batchrun.cli.main import run

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return run(arguments)


def _open_files() -> set[str]:
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{path.name} {path.readlink()}")
        except OSError:
            continue  # that of this very look
    return found
