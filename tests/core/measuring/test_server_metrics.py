"""The `/metrics` pages of the servers, read for the figures that explain a run."""

import pytest

from batchrun.core.measuring.server_metrics import grown, read_metrics

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a}b \\"c\\" d"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 400.0
vllm:prefix_cache_hits_created{engine="0",model_name="m"} 1.7e+09
vllm:num_preemptions_total{engine="0",model_name="m"} 5.0 # {trace="x"} 1 2
vllm:request_queue_time_seconds_bucket{engine="0",le="0.3",model_name="m"} 9.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 12.5
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 10.0
python_gc_objects_collected_total{generation="0"} 99.0
"""


def test_a_page_of_vllm_is_read_over_all_its_engines() -> None:
    found = read_metrics(VLLM)
    assert found is not None
    assert found.server == "vLLM"
    assert dict(found.values) == {
        "running": 7.0,
        "waiting": 2.0,
        "kv_cache_share": 0.75,  # of the fullest engine
        "prefix_queries": 1000.0,
        "prefix_hits": 400.0,
        "preemptions": 5.0,
        "queue_s": 12.5,
        "queue_count": 10.0,
    }


@pytest.mark.parametrize(
    ("line", "server", "figures"),
    [
        (b'vllm:gpu_cache_usage_perc{model_name="m"} 0.5', "vLLM", {"kv_cache_share": 0.5}),
        (b"vllm:gpu_prefix_cache_hits_total 7", "vLLM", {"prefix_hits": 7}),
        (b"vllm:gpu_prefix_cache_hit_rate 0.2", "vLLM", {"prefix_hit_share": 0.2}),
        (b'sglang:num_running_reqs{model_name="m"} 8 1712345678000', "SGLang", {"running": 8}),
        (b"sglang:num_queue_reqs 2", "SGLang", {"waiting": 2}),
        (b"sglang:token_usage 0.28", "SGLang", {"kv_cache_share": 0.28}),
        (b"sglang:num_retracted_reqs 1", "SGLang", {"preemptions": 1}),
        (
            b"sglang:prompt_tokens_total 8.128902e+06",
            "SGLang",
            {"prefix_queries": 8128902, "prompt_tokens": 8128902},
        ),
        (b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n", "llama.cpp", {"running": 1, "waiting": 4}),
        (b"llamacpp:kv_cache_usage_ratio 0.9\r\n", "llama.cpp", {"kv_cache_share": 0.9}),
    ],
)
def test_old_and_new_names_of_each_server_give_one_figure(line: bytes, server: str, figures: dict[str, float]) -> None:
    found = read_metrics(line)
    assert found is not None
    assert (found.server, dict(found.values)) == (server, figures)


def test_a_page_that_gives_a_figure_under_two_names_is_not_counted_twice() -> None:
    found = read_metrics(b"vllm:gpu_cache_usage_perc 0.4\nvllm:kv_cache_usage_perc 0.4\n")
    assert found is not None
    assert found.values["kv_cache_share"] == 0.4


@pytest.mark.parametrize(
    "page",
    [b"", b"<html>not found</html>", b"process_cpu_seconds_total 3\n", b"\xff\xfe\x00", b"vllm:{ 3", b"#vllm:x 1"],
)
def test_a_page_of_no_known_server_is_none(page: bytes) -> None:
    assert read_metrics(page) is None


@pytest.mark.parametrize("word", [b"NaN", b"+Inf", b"many", b""])
def test_a_value_that_is_no_number_is_not_told(word: bytes) -> None:
    found = read_metrics(b"vllm:num_requests_running " + word + b"\nvllm:num_requests_waiting 1\n")
    assert found is not None
    assert dict(found.values) == {"waiting": 1}


def test_a_counter_of_a_server_that_began_anew_counts_from_nothing() -> None:
    assert (grown(10, 14), grown(10, 3), grown(0, 0)) == (4, 3, 0)
