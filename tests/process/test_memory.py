"""Memory does not grow with the input: neither while it is checked and registered, nor while it is performed."""

import signal
from collections.abc import Callable
from pathlib import Path

from tests.lab import Lab, Run, assert_accounts_agree, batch_line

FEW, MANY = 1_500, 24_000  # lines of 2 kB
MOST_MB = 250
GROWTH_MB = 40


def _peak_mb(run: Run) -> float:
    status = Path(f"/proc/{run.process.pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def _peak_of(lab: Lab, count: int) -> float:
    """Perform a thousand of so many items, and return the highest memory by then."""
    text = "lorem " * 330
    with (lab.folder / "inputs" / "in.jsonl").open("w") as file:
        file.writelines(batch_line(f"a{number}", text) for number in range(count))
    lab.write_spec(concurrency=64)
    run = lab.start("submit", "jobs/job.json", "--no-trial")
    lab.await_arrivals(1_000, run=run)
    peak_mb = _peak_mb(run)
    run.kill(signal.SIGTERM)
    assert run.wait() == 143, run.err
    assert_accounts_agree(lab, is_over=False)
    return peak_mb


def test_a_large_input_takes_no_more_memory_than_a_small_one(make_lab: Callable[..., Lab]) -> None:
    few = _peak_of(make_lab("few", latency_ms=5), FEW)
    many = _peak_of(make_lab("many", latency_ms=5), MANY)
    assert many < MOST_MB
    assert many - few < GROWTH_MB, (few, many)
