"""`batchrun bench` against the mock endpoint: what it prints, writes, ends with, and leaves in the ledger."""

import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from batchrun.core.measuring.document import Measurement, Run
from batchrun.core.measuring.timings import Measured
from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from tests.docs.test_help import EVERY, example_of
from tests.lab import Lab

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
TTFT_S, ITL_S, TOKENS = 0.06, 0.008, 20
LATE_S = 0.1  # of a busy machine, for the quickest of several; from the first token to the last it is 0.15
SMALL = ("-w", f"60x{TOKENS}", "--pause", "0", "-n", "6")
Labs = Callable[..., Lab]


def measured(lab: Lab) -> Measurement:
    (path,) = (lab.folder / "measurements").glob("*.json")
    return Measurement.from_json(path.read_text())


def requests_of(run: Run) -> tuple[Measured, ...]:
    assert run.requests is not None
    return run.requests


def timed(make: Labs, **settings: object) -> Lab:
    return make(ttft_ms=TTFT_S * 1e3, itl_ms=ITL_S * 1e3, answer_tokens=TOKENS, answer_spread=0.0, **settings)


def test_on_an_endpoint_of_known_timing_every_latency_is_the_truth(make_lab: Labs) -> None:
    """No piece comes before its time, and the quickest ones come just then: sums and counts agree exactly."""
    lab = timed(make_lab)
    run = lab.run("bench", *SMALL, "-c", "1,3", "--rounds", "1", "--warm-up", "1")
    assert run.wait() == 0, run.err
    result = measured(lab)
    assert [(one.level, one.figures.requests) for one in result.runs] == [(1.0, 6), (3.0, 6)]
    for one in result.runs:
        rows = requests_of(one)
        assert {row.output_tokens for row in rows} == {TOKENS}
        for row in rows:
            assert row.ttft_s is not None
            assert row.e2el_s is not None
            assert row.tpot_s is not None
            assert row.ttft_s >= TTFT_S
            assert row.e2el_s >= TTFT_S + (TOKENS - 1) * ITL_S
            assert len(row.gaps_s) == TOKENS  # a gap before each token but the first, and one before the end's chunk
            assert row.e2el_s == pytest.approx(row.ttft_s + sum(row.gaps_s), abs=1e-5)
            assert row.tpot_s == pytest.approx(sum(row.gaps_s) / (TOKENS - 1), abs=1e-6)
            assert row.ended_s >= (row.last_token_s or 0.0)
        quickest = min(row.ttft_s or 1.0 for row in rows)
        assert quickest == pytest.approx(TTFT_S, abs=LATE_S)
        assert min(row.e2el_s or 9.0 for row in rows) == pytest.approx(TTFT_S + (TOKENS - 1) * ITL_S, abs=LATE_S)
        figures = one.figures
        assert figures.output_throughput == pytest.approx(6 * TOKENS / figures.duration_s)
        first, last = min(row.sent_s or 0.0 for row in rows), max(row.ended_s for row in rows)
        assert figures.duration_s == pytest.approx(last - first, abs=1e-5)
    serial = sorted(requests_of(result.runs[0]), key=lambda row: row.sent_s or 0.0)
    assert all((after.sent_s or 0.0) >= before.ended_s - 1e-4 for before, after in pairwise(serial))
    assert result.setup.groups[0].server == "batchrun's mock"


def test_prompts_have_their_length_by_the_endpoints_own_count(make_lab: Labs) -> None:
    lab = make_lab()
    run = lab.run("bench", "-w", "mixed", "-n", "6", "-c", "3", "--rounds", "1", "--pause", "0")
    assert run.wait() == 0, run.err
    counted = sorted(row.prompt_tokens or 0 for row in requests_of(measured(lab).runs[0]))
    assert counted == pytest.approx([100, 100, 500, 500, 1200, 1200], rel=0.08)


def test_arrivals_come_by_their_schedule_whatever_has_been_answered(make_lab: Labs) -> None:
    lab = make_lab(latency_ms=1_500)
    run = lab.run("bench", "-w", "40x4", "-n", "12", "--rate", "20", "--rounds", "1", "--pause", "0", "--warm-up", "0")
    assert run.wait() == 0, run.err
    rows = requests_of(measured(lab).runs[0])
    assert sum(row.due_s is not None for row in rows) == 12
    assert (rows[-1].sent_s or 0.0) < 12  # one after the other: at 16.5 s
    assert sorted(row.queue_s or 0.0 for row in rows)[6] < 4  # about 8.7 s


def test_two_endpoints_are_measured_in_turn_and_targets_decide_the_exit(make_lab: Labs) -> None:
    lab = timed(make_lab)
    with MockProcess(MockConfig(ttft_ms=2_200, answer_tokens=TOKENS, answer_spread=0.0)) as slow:
        flags = (*SMALL, "-c", "2", "-n", "2", "--warm-up", "0", "--against", slow.base_url)
        run = lab.run("bench", *flags, "--goodput", "ttft:2190", "e2el:9000")
        assert run.wait() == 7, run.err
    result = measured(lab)
    assert "".join(one.group for one in result.runs) == "ABBAAB"
    assert [load.figures["attainment"].high for load in result.loads][1] == 0.0
    assert "no load meets it" not in run.out
    assert "missed" in run.out
    assert "TPOT" in run.out


def test_failures_are_counted_and_end_nothing(make_lab: Labs) -> None:
    lab = make_lab(error_rate=0.3, seed=5)
    run = lab.run("bench", "-w", "40x4", "-n", "30", "-c", "4", "--rounds", "1", "--pause", "0", "--warm-up", "0",
                  "--goodput", "e2el:60000")  # fmt: skip
    assert run.wait() == 7, run.err
    figures = measured(lab).runs[0].figures
    assert figures.failed > 0
    assert figures.attainment == figures.success_rate == pytest.approx(1 - figures.failed / 30)
    assert figures.e2el_ms.mean is None
    assert "server_error" in run.out


def test_each_run_is_a_job_of_the_ledger_and_its_requests_are_priced_there(make_lab: Labs) -> None:
    lab = make_lab()
    run = lab.run("bench", "-w", "40x4", "-n", "3", "-c", "1", "--rounds", "2", "--pause", "0", "--format", "vllm")
    assert run.wait() == 0, run.err
    results = [json.loads(line) for line in run.out.splitlines()]
    assert [one["completed"] for one in results] == [3, 3]
    assert {"median_ttft_ms", "p99_tpot_ms", "std_itl_ms", "mean_e2el_ms", "request_throughput"} <= results[0].keys()
    jobs = lab.run("ls", "--json")
    assert jobs.wait() == 0
    names = [job["job_id"].partition("-A-")[2] for job in jobs.json["jobs"]]
    assert sorted(names) == ["l1-r1", "l1-r2", "probe", "warm-up"]
    assert lab.judged().posts == 3 + 3 + 4 + 4


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--goodput", "ttft"], "NAME:MILLISECONDS"),
        (["-c", "0"], "no list of numbers"),
        (["-w", "tall"], "no workload"),
        (["--arrivals", "poisson"], "--arrivals without --rate"),
        (["--param", "top_k"], "no parameter"),
    ],
)
def test_what_is_typed_wrongly_is_refused_before_anything_is_sent(make_lab: Labs, flags: list[str], words: str) -> None:
    lab = make_lab()
    run = lab.run("bench", *flags)
    assert run.wait() == 2
    assert words in run.err
    assert lab.judged().posts == 0


def test_an_endpoint_that_counts_no_tokens_is_not_measured_by_guess(make_scripted: Callable[..., Any]) -> None:
    lab, _ = make_scripted(default={"answer": {}})
    run = lab.run("bench", "-m", "m", "-n", "2", "-c", "1", "--rounds", "1")
    assert run.wait() != 0
    assert "lengths would be a guess" in run.err


def test_the_help_begins_with_an_example_that_works(make_lab: Labs) -> None:
    """It is `batchrun bench` with targets; here on a quick endpoint, with fewer requests."""
    (example,) = [example_of(command.get_help(context)) for name, command, context in EVERY if name == "batchrun bench"]
    _, *arguments = shlex.split(example)
    lab = make_lab()
    run = lab.run(*arguments, "-n", "2", "-c", "2", "--rounds", "1", "--pause", "0")
    assert run.wait() == 0, run.err


def test_a_server_with_a_tokenizer_is_asked_for_lengths_and_sent_no_probe(make_lab: Labs) -> None:
    lab = make_lab(answer_tokens=4, tokenizes=True)
    flags = ("-w", "300x4", "--pause", "0", "-n", "8", "-c", "2", "--rounds", "1")
    run = lab.run("bench", *flags, "--warm-up", "1")
    assert run.wait() == 0, run.err
    result = measured(lab)
    assert result.setup.workload.counted_by == "tokenize"
    mean = sum(row.prompt_tokens or 0 for row in requests_of(result.runs[0])) / 8
    assert mean == pytest.approx(300, rel=0.03)
    assert lab.judged().posts == 8 + 1, "the runs and the warm-up alone"
    assert result.setup.groups[0].server == "batchrun's mock"


def test_responses_are_streamed_and_timed_like_chats(make_lab: Labs) -> None:
    lab = timed(make_lab)
    run = lab.run("bench", *SMALL, "-c", "2", "--rounds", "1", "--warm-up", "1", "--responses")
    assert run.wait() == 0, run.err
    (one,) = measured(lab).runs
    rows = requests_of(one)
    assert {row.output_tokens for row in rows} == {TOKENS}
    for row in rows:
        assert row.ttft_s is not None
        assert row.ttft_s >= TTFT_S
        assert len(row.gaps_s) == TOKENS - 1
        assert row.e2el_s is not None
        assert row.e2el_s >= TTFT_S + (TOKENS - 1) * ITL_S
    assert min(row.ttft_s or 1.0 for row in rows) == pytest.approx(TTFT_S, abs=LATE_S)
    assert lab.run("bench", *SMALL, "--responses", "--completions").wait() == 2
