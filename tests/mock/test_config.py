"""The settings: what they refuse, and their way to a child process."""

import pytest

from batchrun.mock.config import MockConfig


def test_settings_survive_the_way_to_a_child_process() -> None:
    config = MockConfig(models=("a", "b"), api_key="k", latency_ms=5.0, slots=3, cut_rate=0.25, log_path="x.jsonl")
    assert MockConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("settings", "subject"),
    [
        ({"error_rate": 1.5}, "error_rate"),
        ({"cut_rate": float("nan")}, "cut_rate"),
        ({"error_rate": 0.6, "hang_rate": 0.6}, "add up to 1.2"),
        ({"ttft_ms": -1.0}, "ttft_ms"),
        ({"latency_ms": float("inf")}, "latency_ms"),
        ({"slots": 0}, "slots"),
        ({"knee": 0}, "knee"),
        ({"refuse_above": -1}, "refuse_above"),
        ({"answer_spread": 2.0}, "answer_spread"),
        ({"models": ()}, "models"),
        ({"models": "mock"}, "models"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(settings: dict[str, object], subject: str) -> None:
    with pytest.raises(ValueError, match=subject):
        MockConfig(**settings)  # type: ignore[arg-type]


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(ValueError, match="unknown mock settings: eror_rate"):
        MockConfig.from_json('{"eror_rate": 0.1}')
