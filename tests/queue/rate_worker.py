"""A process that sends as fast as its rate windows let it, and prints when it sent: `URL RPM SECONDS NUMBER`."""

import asyncio
import random
import sys
import time

from batchrun.core.rate import ASK_AGAIN_S, Limits, Window
from batchrun.queue.windows import RedisWindows

SHORT = Window(length_s=4.0, use_within_s=0.03, bucket_s=0.02, clock_slack_s=0.03, burst_s=0.2, least_wait_s=0.01)


async def main(url: str, rpm: int, run_s: float, number: int) -> None:
    dice = random.Random(number)
    windows = RedisWindows(url, ledger_id="test", book="1", clock=time.monotonic, window=SHORT)
    limits, until, sent = Limits(rpm), time.monotonic() + run_s, []
    is_fresh = True
    while time.monotonic() < until:
        grant = await windows.take(limits, [1] * dice.randint(1, 24), is_fresh=is_fresh)
        kept = len(grant.permits) - (dice.random() < 0.2)
        for permit in grant.permits[:kept]:
            if permit.is_usable(now := time.monotonic()):
                sent.append(now)
            else:
                windows.give_back([permit])
        windows.give_back(grant.permits[kept:])
        await asyncio.sleep(min(grant.wait_s or 0.0, ASK_AGAIN_S))
    await windows.close()
    print(*sent)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
