"""A lane sends what is still its owner's when the turn has come: what went back while it waited is not sent."""

import asyncio
import signal
from collections import Counter
from pathlib import Path

from batchrun.core.rate import Limits
from batchrun.runner.means import Way
from batchrun.runner.session import Session
from tests.runner.bench import Bench, Endpoint, until


def test_what_is_given_back_while_it_waits_for_its_permit_is_not_sent(tmp_path: Path) -> None:
    endpoint = Endpoint()
    bench = Bench(tmp_path, ways=[Way(endpoint, limits=Limits(rpm=1))])

    def claimed() -> int:
        with bench.ledger.read() as connection:
            found: int = connection.exec_driver_sql("SELECT count(*) FROM attempts").scalar_one()
        return found

    async def drain(session: Session) -> None:
        await until(lambda: len(endpoint.sent) == 1)
        while await asyncio.to_thread(claimed) < 2:  # another one waits for the next minute
            await asyncio.sleep(0.005)
        session.signal(signal.SIGTERM)

    bench.run(drain)
    assert len(endpoint.sent) == 1
    assert bench.counts == Counter(completed=1, pending=bench.count - 1)
