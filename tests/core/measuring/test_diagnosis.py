"""The rules that say where a load is slow, as a table: symptoms, the layer named first, and what is tried first."""

from dataclasses import replace

import pytest

from batchrun.core.measuring.diagnosis import RULES, Weight, diagnose
from batchrun.core.measuring.layers import DECODE, PREFILL, QUEUE, SERVER_QUEUE, WAY, WHOLE, Layer
from batchrun.core.measuring.observed import ClientLoad
from batchrun.core.measuring.symptoms import Symptoms

HEALTHY = Symptoms(
    level=16,
    requests=100,
    completed=100,
    layers=(Layer(QUEUE, 0.001, 0.01), Layer(WAY, 0.05, 0.44), Layer(DECODE, 0.06, 0.55)),
    prompt_p50=100,
    prompt_p99=150,
    output_p50=50,
    ttft_p50_s=0.05,
    tpot_p50_s=0.01,
    throughput=800,
    waiting_mean=0,
    running_most=16,
    kv_cache_most=0.3,
    preemptions=0,
    client=ClientLoad(60, 0, 0.3, 0.01),
    gpu_throttled_share=0,
)
HALF = "lower the concurrency first: 8 instead of 16"


def layers(name: str, share: float, mean_s: float = 1.0) -> tuple[Layer, ...]:
    return (Layer(name, mean_s, share), Layer(WHOLE, mean_s, 1 - share))


@pytest.mark.parametrize(
    ("changes", "layer", "weight", "evidence", "first"),
    [
        ({"client": ClientLoad(60, 12, 1.0, 0.4)}, "client", Weight.INVALID, "12 of 60 s", HALF),
        ({"is_varied": True, "cached_share": 0.8}, "input", Weight.INVALID, "80% of the prompt", "chat template"),
        ({"completed": 90, "causes": {"timeout": 10}}, "reliability", Weight.FAULT, "10 timeout", HALF),
        ({"completed": 90, "causes": {"rate_limited": 10}}, "throttling", Weight.FAULT, "10 of 100", HALF),
        ({"retried": 5}, "retries", Weight.FAULT, "5 of 100", HALF),
        ({"causes": {"connect": 2}, "completed": 98}, "connection", Weight.FAULT, "never reached", HALF),
        ({"layers": layers(QUEUE, 0.5)}, "our queue", Weight.SLOW, "50% of its time", "disk of the ledger"),
        ({"layers": layers(QUEUE, 0.5), "rpm": 60}, "our queue", Weight.SLOW, "50%", "your own limit (rpm 60)"),
        ({"layers": layers(QUEUE, 0.5), "is_open": True}, "our queue", Weight.SLOW, "50%", "below 16 a second"),
        ({"layers": layers(SERVER_QUEUE, 0.4)}, "server's queue", Weight.SLOW, "waits 1.0 s", HALF),
        ({"waiting_mean": 7.5}, "server's queue", Weight.SLOW, "7.5 requests wait", HALF),
        ({"preemptions": 3}, "KV cache", Weight.SLOW, "put 3 requests back", HALF),
        ({"kv_cache_most": 0.98}, "KV cache", Weight.SLOW, "98% full", HALF),
        ({"layers": layers(PREFILL, 0.6)}, "prefill", Weight.SLOW, "of prompts of 100 tokens", "cache it"),
        ({"layers": layers(WAY, 0.6)}, "way to the first token", Weight.SLOW, "does not say for what", HALF),
        ({"layers": layers(DECODE, 0.8)}, "decode", Weight.NOTE, "for 50 tokens, 80%", "a smaller max_tokens"),
        ({"gpu_throttled_share": 0.3}, "GPU", Weight.SLOW, "heat or power at 30%", "cooling"),
        ({"prompt_p99": 900}, "input", Weight.NOTE, "900 tokens at p99", "longest"),
        ({"job": "j", "cut_share": 0.2, "output_limit": 64}, "parameters", Weight.NOTE, "max_tokens (64)", "raise"),
    ],
)
def test_each_layer_is_named_by_its_symptom(
    changes: dict[str, object], layer: str, weight: Weight, evidence: str, first: str
) -> None:
    ((_, findings),) = diagnose([replace(HEALTHY, **changes)])  # type: ignore[arg-type]
    assert (findings[0].layer, findings[0].weight) == (layer, weight)
    assert evidence in findings[0].evidence
    assert first in findings[0].advice[0]


def test_a_healthy_load_has_no_finding() -> None:
    assert diagnose([HEALTHY]) == [(HEALTHY, [])]


def test_nothing_known_is_nothing_found() -> None:
    bare = Symptoms(level=4)
    assert [rule(bare, None) for rule in RULES] == [None] * len(RULES)


def test_a_first_token_that_grows_alone_points_at_the_server_queue_without_its_metrics() -> None:
    lower = replace(HEALTHY, level=8, waiting_mean=None)
    upper = replace(HEALTHY, waiting_mean=None, ttft_p50_s=0.4)
    found = diagnose([lower, upper])[1][1]
    assert found[0].layer == "server's queue"
    assert "8.0 times as long as at 8" in found[0].evidence


def test_a_server_that_tells_of_an_empty_queue_is_believed() -> None:
    lower = replace(HEALTHY, level=8, waiting_mean=0.0)
    upper = replace(HEALTHY, waiting_mean=0.0, ttft_p50_s=0.4, layers=layers(SERVER_QUEUE, 0.001))
    assert "server's queue" not in [one.layer for one in diagnose([lower, upper])[1][1]]


def test_tokens_that_become_slower_for_no_throughput_send_one_back() -> None:
    lower = replace(HEALTHY, level=8, layers=layers(DECODE, 0.9))
    upper = replace(lower, level=16, tpot_p50_s=0.02, throughput=810)
    found = diagnose([lower, upper])[1][1]
    assert (found[0].layer, found[0].weight) == ("decode", Weight.SLOW)
    assert found[0].advice[0] == "go back to 8 at once: more brings only waiting"


def test_what_invalidates_comes_first_and_a_job_is_told_the_command() -> None:
    sick = replace(
        HEALTHY, job="batch-001", client=ClientLoad(10, 5, 1.0, 0.2), causes={"rate_limited": 30}, completed=70
    )
    findings = diagnose([sick])[0][1]
    assert [one.layer for one in findings[:2]] == ["client", "throttling"]
    assert findings[1].advice[0] == "batchrun set batch-001 -c 8"
