"""What an endpoint remembers of the work it has done, so that it can be asked about it or give it once more."""

from batchrun.mock.config import MockConfig
from batchrun.mock.plan import Arrival, Plan
from batchrun.mock.replays import Replays
from batchrun.mock.request import Request
from batchrun.mock.spend import SpendLog
from batchrun.mock.stored import StoredCompletions


class Memory:
    """All that one mock remembers; each of the three parts only where the configuration asks for it."""

    def __init__(self, config: MockConfig) -> None:
        self._replays = None if config.replay_s is None else Replays(config.replay_s)
        self._stored = StoredCompletions() if config.stores else None
        self._spend = None if config.spend_log is None else SpendLog(with_answers=config.spend_log == "answers")

    @property
    def keeps_answers(self) -> bool:
        """Whether the whole answer is needed beside what is sent."""
        return bool(self._replays or self._stored or self._spend)

    def recall(self, arrival: Arrival) -> Plan | None:
        """Return what a request gets whose idempotency key is known; None: it is served like any other."""
        return self._replays.recall(arrival) if self._replays else None

    def note(self, arrival: Arrival, plan: Plan) -> Plan:
        """Note what is going to be done, and return the plan with the marks of a gateway, where one is played."""
        if self._replays:
            self._replays.begin(arrival, plan)
        if self._spend:
            plan.extra_head += self._spend.mark(arrival)
        return plan

    def keep(self, arrival: Arrival, plan: Plan) -> None:
        """Remember work that is done and billed, whether or not its answer gets through."""
        if not plan.billed:
            return
        if self._replays:
            self._replays.end(arrival, plan)
        if self._stored:
            self._stored.keep(arrival.request, plan)
        if self._spend:
            self._spend.keep(arrival, plan)

    def look_up(self, request: Request) -> Plan | None:
        """Answer a question about work done; None where this is no such question."""
        plan = self._stored.look_up(request) if self._stored else None
        return plan or (self._spend.look_up(request) if self._spend else None)
