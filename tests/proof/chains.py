"""Random chains: python -m tests.proof.chains [--chains N] [--seed S] [--only NUMBER] [--postgres URL] [--redis URL]

One to five deaths at random points, an endpoint with random faults, one to three processes at one job; some are
stopped, taken for dead, and wake when another has finished their job; and a sweeper is wrong about the living.
"""

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from tests.proof import points

if __name__ == "__main__":
    points.install()

from sqlalchemy import select

from batchrun.core.states import JobState
from batchrun.ledger.liveness import Observer
from batchrun.ledger.schema import workers
from batchrun.runner.sweep import sweep
from batchrun.settings import Settings
from batchrun.wiring import open_house
from tests import services
from tests.lab import Lab
from tests.process.steps import ids, is_locked, process_state, standing_or_none
from tests.proof.forks import fork, kill
from tests.proof.lanes import LANES, Lanes, in_schema, prepare, sum_up, tell
from tests.proof.scenes import RESUME, SUBMIT
from tests.proof.stage import DIED, PATIENCE_S, Actor, Stage
from tests.proof.verdict import Law, Report, Verdict, has_ended, judge

# Points that a process passes while it performs a job, the likelier the oftener it does.
ON_THE_WAY = (
    *("claim-moved", "claim-intended", "group-written", "group-durable", "group-told", "claim-known"),
    *("send-permitted", "send-connected", "send-begun", "receive-begun", "receive-whole", "spool-empty"),
    *("spool-written", "settle-due", "answers-recorded", "answers-moved", "settle-known", "spool-overwritten"),
    *("hint-due", "hint-sent", "hint-taken", "outcome-recorded", "release-due", "release-recorded"),
    *("enter-known", "hold-taken", "epoch-begun", "sweep-adopted", "rescue-moved", "sweep-buried", "grave-cleared"),
    *("policy-followed", "register-filled", "register-open", "file-synced", "file-renamed", "partial-grown"),
    *("end-begun", "end-written", "end-durable", "hold-let-go", "leave-said"),
)
SECOND_OPINION_S = "4.0"  # after that the silent are dead, where nobody can look at their locks
ROUNDS = 14
ROUND_S = 120.0  # for what takes a second or two where nothing else runs


@dataclass(frozen=True)
class Chain:
    """One chain, drawn from its seed alone."""

    seed: str
    policy: str
    backend: str
    is_shared: bool  # workers behind a broker; else processes of which one performs, and the others follow
    processes: int
    concurrency: int
    items: int
    deaths: int
    disturbance: str | None  # zombie, wrong sweeper
    faults: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        how = "workers" if self.is_shared else "processes"
        return f"{self.seed}: {self.policy}/{self.backend}/{self.processes} {how}/{self.disturbance or 'undisturbed'}"


def draw(seed: str) -> Chain:
    """Draw a chain."""
    dice = random.Random(seed)
    disturbance = dice.choice([None, "zombie", "wrong sweeper"])
    names = ("error_rate", "rate_limit_rate", "reset_rate", "cut_rate", "bad_json_rate", "hang_rate")
    return Chain(
        seed=seed,
        policy=dice.choice(["hold", "retry"]),
        backend=dice.choice(["sqlite", "postgres"]),
        is_shared=dice.random() < 0.5,
        processes=dice.randint(2 if disturbance == "zombie" else 1, 3),
        concurrency=dice.randint(2, 8),
        items=dice.randint(15, 40),
        deaths=dice.randint(1, 5),
        disturbance=disturbance,
        faults={name: round(dice.uniform(0.01, 0.08), 3) for name in dice.sample(names, dice.randint(0, 3))},
    )


def run_chain(chain: Chain, folder: Path, *, postgres: str, redis: str) -> Report:
    """Play a chain in an empty folder, in forks of this process, which opens nothing itself."""
    report = Report(str(chain))
    with report.writing():
        _Play(chain, folder, postgres, redis, report).run()
    return report


class _Play:
    def __init__(self, chain: Chain, folder: Path, postgres: str, redis: str, report: Report) -> None:
        self._chain, self._report = chain, report
        self._dice = random.Random(f"{chain.seed} played")
        lab = Lab(folder, log=folder / "requests.jsonl")
        if chain.backend == "postgres":
            lab.db = in_schema(postgres, folder)
        lab.write_input(chain.items)
        lab.write_spec(concurrency=chain.concurrency, on_unknown=chain.policy, timeout_s=2, trial={"size": 4})
        self._env = {"BATCHRUN_DEAD_AFTER_S": SECOND_OPINION_S, "BATCHRUN_HEARTBEAT_S": "0.2"}
        if chain.is_shared:
            self._env["BATCHRUN_BROKER"] = redis
        timing = {"latency_ms": 15, "latency_sigma": 0.5, "retry_after_s": 0.05, "faults_per_item": 1}
        settings = {"seed": self._dice.randrange(1 << 30), **timing, **chain.faults}
        self._stage = Stage(lab, settings, env=self._env)
        self._deaths_left = chain.deaths
        self._is_disturbed = False

    def run(self) -> None:
        """Play rounds until the job has ended, and judge."""
        with self._stage as stage:
            sampler = fork(partial(_sample, stage.lab))
            try:
                for number in range(ROUNDS):
                    self._round(number)
                    if self._deaths_left <= 0 and stage.apart(partial(has_ended, stage.lab)):
                        break
                    if number >= self._chain.deaths:
                        self._deaths_left = 0
            finally:
                kill(sampler)
            self._judge()
        self._report.verdict.faults += stage.complaints()
        if (miscounted := stage.lab.folder / "miscounted").exists():
            self._report.verdict.faults.append(miscounted.read_text())

    # -- one round ------------------------------------------------------------------------------------------------

    def _round(self, number: int) -> None:
        """Let some processes work on the job until whoever follows it leaves, or all have died."""
        chain, stage = self._chain, self._stage
        at_first = stage.lab.arrivals()
        crew = [self._start_worker() for _ in range(chain.processes)] if chain.is_shared else []
        is_registered = stage.apart(partial(_is_registered, stage.lab))
        lead = stage.start(RESUME if is_registered else SUBMIT, self._fate())
        company = [*crew, lead]
        if not chain.is_shared and chain.processes > 1:
            self._await_arrivals(at_first + 1, lead, crew)
            if stage.apart(partial(_is_registered, stage.lab)):
                company += [stage.start(RESUME, self._fate()) for _ in range(chain.processes - 1)]
        if chain.disturbance is not None and not self._is_disturbed and number == 0:
            self._await_arrivals(at_first + self._dice.randint(2, chain.items // 2), lead, crew)
            self._disturb(company)
        self._await_end(company, crew)
        died = sum(actor.code == DIED for actor in company)
        self._report.deaths += died
        self._deaths_left -= died

    def _await_arrivals(self, count: int, lead: Actor, crew: list[Actor]) -> None:
        """Wait until the endpoint has seen `count` requests, or nobody is left who could send one."""
        lab, senders = self._stage.lab, crew or [lead]
        deadline = time.monotonic() + PATIENCE_S
        while lab.arrivals() < count and lead.is_alive() and any(actor.is_alive() for actor in senders):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{lab.arrivals()} of {count} requests arrived\n{lead.said}")
            time.sleep(0.003)

    def _start_worker(self) -> Actor:
        return self._stage.start(("worker", "--alone", "-c", str(self._chain.concurrency)), self._fate())

    def _fate(self) -> tuple[str, int] | None:
        """Draw where a process dies, while there are deaths left."""
        if self._deaths_left <= 0 or self._dice.random() < 0.2:
            return None
        return self._dice.choice(ON_THE_WAY), self._dice.randint(1, 8)

    def _await_end(self, company: list[Actor], crew: list[Actor]) -> None:
        """Wait until all but the workers have ended, then end these; where all are dead, one without a fate comes."""
        deadline = time.monotonic() + ROUND_S
        others = [actor for actor in company if actor not in crew]
        while any(actor.is_alive() for actor in others):
            if crew and not any(actor.is_alive() for actor in crew):
                crew.append(self._stage.start(("worker", "--alone", "-c", str(self._chain.concurrency))))
                company.append(crew[-1])
            if time.monotonic() > deadline:
                said = "\n".join(f"{' '.join(actor.command)}: {actor.said}" for actor in company)
                raise TimeoutError(f"the job did not end\n{said}")
            time.sleep(0.01)
        for actor in crew:
            actor.signal(signal.SIGTERM)
        for actor in company:
            code = actor.wait()
            assert code in (0, 2, 3, 5, 6, 8, 75, DIED), (actor.command, code, actor.said)

    # -- disturbances -----------------------------------------------------------------------------------------------

    def _disturb(self, company: list[Actor]) -> None:
        self._is_disturbed = True
        stage = self._stage
        if self._chain.disturbance == "wrong sweeper":
            stage.apart(partial(_sweep_wrongly, stage.lab, dict(self._env)))
            return
        living = [actor for actor in company if (actor.is_alive() and actor.command != SUBMIT) or len(company) == 1]
        zombie = self._dice.choice(living) if living else None
        if zombie is None or not self._stop_between_writes(zombie):
            return
        # Nobody can see its lock any more, as if it were on another host: its counter alone speaks for it.
        hidden = stage.apart(partial(_hide_lock, stage.lab, zombie.pid))
        others = [actor for actor in company if actor is not zombie and actor.command[0] == zombie.command[0]]
        deadline = time.monotonic() + ROUND_S
        while hidden and time.monotonic() < deadline and any(actor.is_alive() for actor in others):
            if stage.apart(partial(has_ended, stage.lab)):
                break
            time.sleep(0.2)
        zombie.signal(signal.SIGCONT)

    def _stop_between_writes(self, actor: Actor) -> bool:
        """Stop a process while it does not lock the ledger; False where it ended before."""
        while actor.is_alive():
            actor.signal(signal.SIGSTOP)
            while actor.is_alive() and process_state(actor.pid) != "T":
                time.sleep(0.001)
            if self._chain.backend == "postgres" or not self._stage.apart(partial(is_locked, self._stage.lab)):
                return actor.is_alive()
            actor.signal(signal.SIGCONT)
            time.sleep(0.003)
        return False

    # -- the end ----------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        most = None if self._is_disturbed else self._report.deaths * self._chain.concurrency
        law = Law(ids(self._chain.items), self._chain.policy, most, may_overlap=self._is_disturbed)
        self._report.verdict = Verdict(**self._stage.apart(lambda: asdict(judge(self._stage.lab, law))))


def _is_registered(lab: Lab) -> bool:
    standing = standing_or_none(lab)
    return standing is not None and standing.job.state is not JobState.VALIDATING


def _hide_lock(lab: Lab, pid: int) -> bool:
    """Take a worker's lock out of sight; its process goes on holding it."""
    ledger = lab.ledger()
    with ledger.read() as connection:
        query = select(workers.c.folder, workers.c.incarnation).where(
            workers.c.pid == pid, workers.c.ended_at.is_(None)
        )
        found = connection.execute(query).first()
    if found is None:
        return False
    path = Path(found.folder) / f"{found.incarnation}.lock"
    path.rename(path.with_suffix(".hidden"))
    return True


class _Wrong(Observer):
    """An observer that takes everybody for dead."""

    def is_dead(self, worker_id: int) -> bool:
        return True


def _sweep_wrongly(lab: Lab, env: dict[str, str]) -> None:
    os.chdir(lab.folder)
    os.environ.update(env)
    os.environ["OPENAI_BASE_URL"] = lab.base_url or ""
    if lab.db is not None:
        os.environ["BATCHRUN_DB"] = lab.db
    with open_house(Settings()) as house:
        sweep(house.ledger, _Wrong(house.ledger), except_worker=0, rules_of=house.gear().rules_of)


def _sample(lab: Lab) -> None:
    """Count a running job's items every 100 ms; write down what does not add up."""
    while True:
        time.sleep(0.1)
        standing = standing_or_none(lab)
        if standing is None or standing.job.state is JobState.VALIDATING:
            continue
        if sum(standing.counts.values()) != standing.job.total:
            (lab.folder / "miscounted").write_text(f"{standing.counts} of {standing.job.total}")


def run(options: argparse.Namespace, *, postgres: str, redis: str) -> int:
    """Play the chains, print what came of them, and return the exit code."""
    began = time.monotonic()
    numbers = range(options.chains) if options.only is None else [options.only]
    chains = [draw(f"{options.seed}/{number}") for number in numbers]
    print(f"seed {options.seed}: {len(chains)} chains", flush=True)
    lanes = Lanes(postgres=postgres, lanes=options.lanes)
    reports = []
    for _, report in lanes.play(chains, partial(run_chain, postgres=postgres, redis=redis)):
        reports.append(report)
        tell(report)
    return sum_up(reports, seed=options.seed, took_s=time.monotonic() - began)


def main(arguments: Sequence[str]) -> int:
    """Read the command line, see to Postgres and Redis, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one chain of this seed")
    parser.add_argument("--postgres", metavar="URL", help="a database to use; else a private server is started")
    parser.add_argument("--redis", metavar="URL", help="a Redis to use; else a private server is started")
    parser.add_argument("--lanes", type=int, default=LANES)
    options = parser.parse_args(arguments)
    prepare()
    with ExitStack() as stack:
        postgres = options.postgres or stack.enter_context(services.run_postgres()).url()
        redis = options.redis or stack.enter_context(services.run_redis()).url
        return run(options, postgres=postgres, redis=redis)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
