"""Rules taken away one at a time: without each of them the tests named beside it must fail.

    python -m tests.proof.mutants [NAME ...]      (make mutants: all of them, a few minutes)

A mutant is made in a copy of the tree, never in the tree itself. tests/proof/test_mutants.py holds each `rule` against
the code, so that none is left behind by a change.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("batchrun", "migrations", "tests", "docs", "jobs", "inputs", "pyproject.toml", "README.md", "CHANGELOG.md")
AT_A_TIME = 2
PATIENCE_S = 600


@dataclass(frozen=True)
class Mutant:
    """One rule, where it stands, what stands there without it, and the tests that must miss it."""

    name: str
    file: str
    rule: str
    without: str
    tests: tuple[str, ...]

    def text(self, source: str) -> str:
        """Return the file without the rule.

        Raises:
            ValueError: the rule does not stand there, or stands there more than once.
        """
        if source.count(self.rule) != 1:
            raise ValueError(f"{self.name}: {self.file} has {source.count(self.rule)} times {self.rule!r}")
        return source.replace(self.rule, self.without)


CLAIMS, SETTLE, RESCUE = "batchrun/ledger/claims.py", "batchrun/ledger/settle.py", "batchrun/ledger/rescue.py"
MARKS, SWEEP, LANE = "batchrun/ledger/send_marks.py", "batchrun/runner/sweep.py", "batchrun/runner/lane.py"
MODEL, OF_MARKS = "tests/ledger/test_machine.py", "tests/ledger/test_send_marks.py"
OF_SWEEPS, OF_LANES = "tests/runner/test_sweep.py", "tests/runner/test_lane.py"
MUTANTS = (
    Mutant(
        "claim without compare-and-swap",
        CLAIMS,
        "        is_claimable(NOW),\n",
        "",
        ("tests/ledger/test_claims.py",),
    ),
    Mutant(
        "no intent before the send",
        CLAIMS,
        "    _INTEND.execute(connection, [_intent(one, worker_id, endpoint, waits[one.item_id], now, keys) "
        "for one in claims])\n",
        "",
        ("tests/ledger/test_claims.py",),
    ),
    Mutant(
        "claim does not raise the fence",
        CLAIMS,
        "fence=items.c.fence + 1, worker_id=THE_WORKER",
        "worker_id=THE_WORKER",
        ("tests/ledger/test_claims.py",),
    ),
    Mutant(
        "a worker that was declared dead may claim",
        CLAIMS,
        "        is_alive(THE_WORKER),\n",
        "",
        ("tests/ledger/test_claims.py", MODEL),
    ),
    Mutant(
        "money is not reserved with the claim",
        CLAIMS,
        "    move_money(connection, job_id, reserved=sum(one.reserved_pusd for one in claims))\n",
        "",
        ("tests/ledger/test_money.py",),
    ),
    Mutant(
        "release gives back what was sent",
        CLAIMS,
        "(attempts.c.key.in_(keys), attempts.c.state == AttemptState.INTENT)",
        "(attempts.c.key.in_(keys),)",
        ("tests/ledger/test_claims.py", "tests/ledger/test_item_moves.py", MODEL),
    ),
    Mutant(
        "settle without a fence",
        SETTLE,
        '    items.c.fence == bindparam("the_fence"),\n    items.c.worker_id == bindparam("the_worker"),\n',
        "",
        ("tests/ledger/test_item_moves.py", "tests/ledger/test_late_evidence.py", MODEL),
    ),
    Mutant(
        "a late answer replaces the one that is there",
        SETTLE,
        "        or_(items.c.answer_key.is_(None), items.c.state == ItemState.FAILED.value),"
        '  # failed: an invalid one\n        stands_in("adopt"),\n',
        "",
        ("tests/ledger/test_late_evidence.py", MODEL),
    ),
    Mutant(
        "hold is not asked when an outcome is written",
        SETTLE,
        "one.evidence.outcome.needs_consent\n",
        "False\n",
        ("tests/ledger/test_late_evidence.py", "tests/ledger/test_item_moves.py", "tests/ledger/test_machine.py"),
    ),
    Mutant(
        "rescue gives pending",
        RESCUE,
        "            state=ItemState.IN_DOUBT,\n",
        "            state=ItemState.PENDING,\n",
        ("tests/ledger/test_item_moves.py", MODEL),
    ),
    Mutant(
        "rescue leaves the fence",
        RESCUE,
        "            state=ItemState.IN_DOUBT,\n            fence=items.c.fence + 1,\n",
        "            state=ItemState.IN_DOUBT,\n            fence=items.c.fence,\n",
        ("tests/ledger/test_item_moves.py", MODEL),
    ),
    Mutant(
        "a doubt can be talked away",
        "batchrun/ledger/outcomes.py",
        "            return outcome is not AttemptState.NOT_SENT\n",
        "            return True\n",
        ("tests/ledger/test_late_evidence.py", MODEL),
    ),
    Mutant(
        "a late paid answer is dropped",
        "batchrun/ledger/outcomes.py",
        "            return outcome is AttemptState.ANSWERED\n",
        "            return False\n",
        ("tests/ledger/test_late_evidence.py", MODEL),
    ),
    Mutant(
        "a consent is good for any fence",
        "batchrun/ledger/consents.py",
        'items.c.id == bindparam("the_item"), items.c.fence == bindparam("the_fence")',
        'items.c.id == bindparam("the_item"), items.c.fence >= bindparam("the_fence")',
        ("tests/ledger/test_consents.py", MODEL),
    ),
    Mutant(
        "unknown is tried again under hold",
        "batchrun/core/retry.py",
        '    if policy.on_unknown == "hold":\n',
        '    if policy.on_unknown == "never":\n',
        ("tests/core/test_retry.py",),
    ),
    Mutant(
        "a lost connection counts as not sent",
        "batchrun/core/outcome.py",
        "frozenset({BreakKind.CONNECT, ",
        "frozenset({BreakKind.LOST, BreakKind.CONNECT, ",
        ("tests/endpoint",),
    ),
    Mutant(
        "a connection that broke after the send counts as one that never was",
        "batchrun/endpoint/breaks.py",
        "class Hung(Exception):",
        "class Hung(NotConnected):",
        ("tests/endpoint/test_breaks.py",),
    ),
    Mutant(
        "an answer that was cut off is whole",
        "batchrun/endpoint/connection.py",
        "        elif self._until_closed:\n",
        "        elif True:\n",
        ("tests/endpoint/test_breaks.py",),
    ),
    Mutant(
        "what lies unread on a kept connection is not looked at",
        "batchrun/endpoint/pool.py",
        " and connection.is_quiet:",
        ":",
        ("tests/endpoint/test_pool.py",),
    ),
    Mutant(
        "a refusal that broke off is one",
        "batchrun/endpoint/classify.py",
        "        verdict = GATEWAY_ERROR  # it ended with its connection: nobody knows what else it would have said\n",
        "        pass\n",
        ("tests/endpoint/test_wire_faults.py",),
    ),
    Mutant(
        "a connection on which a second answer came with the first is used again",
        "batchrun/endpoint/connection.py",
        "        if self._is_more:\n",
        "        if False:\n",
        ("tests/endpoint/test_pool.py",),
    ),
    Mutant(
        "a connection on which the server spoke unasked is used",
        "batchrun/endpoint/connection.py",
        "            self.close()  # nobody has asked: it is not the answer to what will be asked next\n",
        "",
        ("tests/endpoint/test_client.py",),
    ),
    Mutant(
        "a gateway may send again by itself",
        "batchrun/endpoint/sdk.py",
        '{"x-litellm-num-retries": "0"}',
        "{}",
        ("tests/endpoint/test_client.py",),
    ),
    Mutant(
        "a released claim is sent all the same",
        LANE,
        "        is_mine = owner.take_out(claim)  # or it was released in the meantime\n",
        "        is_mine = owner.take_out(claim) or True\n",
        (OF_LANES,),
    ),
    Mutant(
        "an old claim is sent",
        LANE,
        " or boot_clock() - claimed_at > self._means.longest_claim_age_s",
        "",
        ("tests/runner", "tests/process/test_signals.py"),
    ),
    Mutant(
        "a request is sent before it is marked",
        LANE,
        "            self._means.marks.begin(claim.key)\n",
        "            pass\n",
        (OF_LANES, "tests/process/test_order_of_writes.py"),
    ),
    Mutant(
        "what cannot be marked is sent all the same",
        MARKS,
        '            raise LedgerFull(message, hint="make room on its disk, then `batchrun resume`") from None\n',
        "            return\n",
        (OF_MARKS, OF_LANES),
    ),
    Mutant(
        "half a mark counts as one",
        MARKS,
        "        if os.pwrite(self.fd, data, position) != len(data):\n",
        "        if os.pwrite(self.fd, data, position) < 0:\n",
        (OF_MARKS,),
    ),
    Mutant(
        "the place of a mark is used again before the outcome is written",
        "batchrun/runner/settler.py",
        "        # crash point: settle-due\n",
        "        self._means.marks.settled(claim.key)\n",
        (OF_LANES,),
    ),
    Mutant(
        "whoever has left goes on to mark in a file that is another's by now",
        MARKS,
        "        self.fd = -1  # another file may get the number\n",
        "",
        (OF_MARKS,),
    ),
    Mutant(
        "marks that are missing prove that nothing began",
        MARKS,
        "    except OSError:\n        return None\n    if len(data)",
        "    except OSError:\n        return frozenset()\n    if len(data)",
        (OF_MARKS, OF_SWEEPS),
    ),
    Mutant(
        "marks that are cut off are believed",
        MARKS,
        " or len(data) < end:\n",
        ":\n        data = data.ljust(end, bytes(1))\n    if magic != _MAGIC:\n",
        (OF_MARKS, OF_SWEEPS),
    ),
    Mutant(
        "damaged marks are passed over",
        MARKS,
        "        elif key or opposite:\n            return None\n",
        "",
        (OF_MARKS,),
    ),
    Mutant(
        "marks are believed although the lock is held or cannot be seen",
        SWEEP,
        " or holds_lock(one.folder, one.incarnation) is not False:\n",
        ":\n",
        (OF_SWEEPS,),
    ),
    Mutant(
        "marks are believed after a restart of the machine",
        SWEEP,
        "one.boot_id is None or one.boot_id != boot_id() or ",
        "",
        (OF_SWEEPS,),
    ),
    Mutant(
        "a copy of the ledger asks the original's marks",
        SWEEP,
        "    begun = _begun(one) if is_own else None",
        "    begun = _begun(one)",
        (OF_SWEEPS,),
    ),
    Mutant(
        "a replay that never began ends the doubt",
        RESCUE,
        "            attempts.c.replays.is_(None),\n",
        "",
        ("tests/runner/test_replay.py",),
    ),
    Mutant(
        "what was marked is given back too",
        RESCUE,
        "    unsent = [row.key for row in rows if row.key not in begun]\n",
        "    unsent = [row.key for row in rows]\n",
        ("tests/ledger/test_rescue.py", OF_SWEEPS, MODEL),
    ),
    Mutant(
        "evidence against what was called unsent is dropped",
        "batchrun/ledger/sweeps.py",
        "AttemptState.UNKNOWN, AttemptState.NOT_SENT)\n",
        "AttemptState.UNKNOWN)\n",
        ("tests/ledger/test_rescue.py",),
    ),
    Mutant(
        "torn frames are adopted",
        "batchrun/ledger/spool.py",
        "    if _sum(head, about, body) != checksum:\n        return None\n",
        "",
        ("tests/ledger/test_spool.py",),
    ),
    Mutant(
        "a lock that is not this worker's proves its death",
        "batchrun/ledger/liveness.py",
        "        if os.pread(fd, 64, 0) != incarnation.encode():\n            return None\n",
        "",
        ("tests/ledger/test_liveness.py",),
    ),
    Mutant(
        "an observer that slept declares the others dead",
        "batchrun/ledger/liveness.py",
        "if beat != before or now - read_at >= self.dead_after_s / 4:",
        "if beat != before:",
        ("tests/ledger/test_liveness.py",),
    ),
    Mutant(
        "two processes become holders of one job",
        "batchrun/ledger/jobs.py",
        "jobs.c.holder.is_(None) if instead_of is None else jobs.c.holder == instead_of",
        "jobs.c.id == job_id",
        ("tests/ledger/test_job_moves.py", "tests/ledger/test_contention.py"),
    ),
    Mutant(
        "outputs are written in place",
        "batchrun/files/derived.py",
        '        self._temp = self._target.with_name(f".{self._target.name}.tmp-{secrets.token_hex(6)}")\n',
        "        self._temp = self._target\n        self._target.unlink(missing_ok=True)\n",
        ("tests/files/test_derived.py",),
    ),
    Mutant(
        "SQLite's commits are not synced",
        "batchrun/ledger/engines.py",
        "PRAGMA synchronous=FULL",
        "PRAGMA synchronous=OFF",
        ("tests/ledger/test_engines.py",),
    ),
)


def is_missed(mutant: Mutant) -> str | None:
    """Run the tests against the tree without the rule; return None where they fail, else what was wrong."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tree / name)
        path = tree / mutant.file
        path.write_text(mutant.text(path.read_text()))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests]
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
        except subprocess.TimeoutExpired:
            return "its tests came to no end"
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        if done.returncode == 1 and failed:
            return None
        return f"pytest ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}"


def hunt(wanted: Iterable[Mutant]) -> int:
    """Print what became of each mutant; return how many were not caught."""
    mutants = list(wanted)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        fates = pool.map(is_missed, mutants)
        alive = 0
        for mutant, fault in zip(mutants, fates, strict=True):
            alive += fault is not None
            print(f"{'ALIVE ' if fault else 'caught'}  {mutant.name}{f': {fault}' if fault else ''}", flush=True)
    print(f"{len(mutants)} mutants, {alive} not caught")
    return alive


if __name__ == "__main__":
    named = sys.argv[1:]
    sys.exit(min(1, hunt(one for one in MUTANTS if not named or one.name in named)))
