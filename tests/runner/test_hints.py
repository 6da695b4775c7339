"""A hint fits the cause and the job's own figures, and names the command that comes next."""

from dataclasses import replace
from typing import Any

import pytest

from batchrun.core.line import TOKEN_LIMITS
from batchrun.core.outcome import CAUSES, Kind
from batchrun.core.states import ItemState, JobState
from batchrun.runner.hints import Seen, asked_tokens, hint_for, hint_for_stop, kind_of
from tests.runner.jobs import ADDRESS, a_job

FAILED, DOUBT, REJECTED = ItemState.FAILED, ItemState.IN_DOUBT, ItemState.REJECTED
PRICE = {"price": {"input_per_1m_usd": 1.0, "output_per_1m_usd": 2.0}}
LONG = "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens"


@pytest.mark.parametrize(
    ("cause", "state", "seen", "words"),
    [
        ("timeout", DOUBT, Seen(), ("timeout_s is 600", "concurrency (8)", "max_tokens (256)")),
        ("rate_limited", FAILED, Seen(), ("concurrency is 8", "to 4")),
        ("overloaded", FAILED, Seen(), ("concurrency is 8", "to 4")),
        ("auth", FAILED, Seen(), ("OPENAI_API_KEY",)),
        ("model_not_found", FAILED, Seen(), ('set "model" in the spec', "'turbo' now")),
        ("model_not_found", FAILED, Seen(None, {"model": "own"}), ('set "model" in the line', "'own' now")),
        ("context_length", FAILED, Seen(), ("shorten such prompts", "below 256")),
        ("context_length", FAILED, Seen(LONG), ("shorten such prompts", "below 256", "2,048 tokens")),
        (
            "context_length",
            FAILED,
            Seen(LONG, {"max_completion_tokens": 4096}),
            ("lower max_tokens (4,096 now)", "2,048"),
        ),
        ("connect", FAILED, Seen(), (ADDRESS, "OPENAI_BASE_URL")),
        ("route_not_found", FAILED, Seen(), (ADDRESS, "/v1/chat/completions")),
        ("worker_lost", DOUBT, Seen(), ("died",)),
        ("something new", FAILED, Seen(), ("the endpoint's words",)),
    ],
)
def test_the_words_hold_the_jobs_own_figures(cause: str, state: ItemState, seen: Seen, words: tuple[str, ...]) -> None:
    hint = hint_for(a_job(), cause, state, seen)
    assert [one for one in words if one not in hint.words] == [], hint.words


def test_an_address_that_has_answered_others_is_not_blamed() -> None:
    for cause in ("html", "connect", "connect_timeout", "dns", "route_not_found", "redirect"):
        blamed = hint_for(a_job(), cause, FAILED).words
        hint = hint_for(a_job(), cause, FAILED, Seen(has_answers=True))
        assert "OPENAI_BASE_URL" in blamed
        assert "OPENAI_BASE_URL" not in hint.words
        assert ADDRESS in hint.words


@pytest.mark.parametrize(
    ("cause", "state", "command"),
    [
        ("timeout", DOUBT, "batchrun reconcile batch-001"),
        ("server_error", FAILED, "batchrun retry-failed batch-001 --cause server_error"),
        ("timeout", FAILED, "batchrun retry-failed batch-001 --cause timeout"),
        ("given_up", FAILED, "batchrun retry-failed batch-001 --cause given_up"),
        (
            "rate_limited",
            FAILED,
            "batchrun retry-failed batch-001 --cause rate_limited --no-run && batchrun resume batch-001 -c 4",
        ),
        ("context_length", FAILED, "batchrun submit jobs/job.json"),
        ("model_not_found", FAILED, "batchrun submit jobs/job.json"),
        ("rejected", REJECTED, "batchrun submit jobs/job.json"),
    ],
)
def test_the_next_command_fits_the_failure(cause: str, state: ItemState, command: str) -> None:
    assert hint_for(a_job(), cause, state).command == command


@pytest.mark.parametrize("name", TOKEN_LIMITS)
def test_of_several_limits_of_a_request_the_greatest_is_what_it_asks_for(name: str) -> None:
    request = dict.fromkeys(TOKEN_LIMITS, 16) | {name: 4_096}
    assert asked_tokens(request) == 4_096
    assert asked_tokens({name: None}) is asked_tokens({name: True}) is asked_tokens(None) is None


def test_a_job_that_does_one_thing_at_a_time_is_not_told_to_do_less() -> None:
    hint = hint_for(a_job(concurrency=1), "rate_limited", FAILED)
    assert "lower" not in hint.words
    assert hint.command == "batchrun retry-failed batch-001 --cause rate_limited"


def test_a_job_that_finds_its_own_concurrency_is_not_told_to_fix_it() -> None:
    hint = hint_for(a_job(spec={"concurrency": "4-64"}), "rate_limited", FAILED)
    assert "follows by itself (8 now, of 4-64)" in hint.words
    assert hint.command == "batchrun retry-failed batch-001 --cause rate_limited"


@pytest.mark.parametrize(
    ("changes", "is_told"),
    [
        ({}, True),
        ({"on_unknown": "retry"}, False),
        ({"spec": PRICE}, False),
        ({"spec": {"base_url": "https://api.example.com/v1"}}, False),
    ],
)
def test_settling_doubts_by_itself_is_named_only_where_requests_seem_to_cost_nothing(
    changes: dict[str, Any], is_told: bool
) -> None:
    job = a_job(**changes)
    if url := job.spec["base_url"]:
        job = replace(job, spec={**job.spec, "resolved_base_url": url})
    assert ("--on-unknown retry" in hint_for(job, "timeout", DOUBT).words) is is_told


def test_a_named_variable_and_a_spec_with_a_blank_are_named_right() -> None:
    job = a_job(spec={"api_key_env": "MY_KEY", "base_url": "http://127.0.0.1:1/v1"})
    job = replace(job, spec={**job.spec, "spec_file": "my jobs/job.json"})
    assert "MY_KEY" in hint_for(job, "auth", FAILED).words
    assert "base_url in the spec" in hint_for(job, "connect", FAILED).words
    assert hint_for(job, "rejected", REJECTED).command == "batchrun submit 'my jobs/job.json'"


def test_nothing_of_a_purged_job_is_to_be_sent_again() -> None:
    purged = a_job(purge_began_at=1.0, purged_at=2.0)
    assert hint_for(purged, "timeout", DOUBT).command == "batchrun reconcile batch-001 --fail"
    assert hint_for(purged, "server_error", FAILED).command == "batchrun status batch-001"


@pytest.mark.parametrize("cause", sorted(CAUSES))
@pytest.mark.parametrize("state", [FAILED, DOUBT])
def test_every_cause_has_words_a_kind_and_a_command(cause: str, state: ItemState) -> None:
    hint = hint_for(a_job(), cause, state)
    assert hint.words
    assert hint.command.startswith("batchrun ")
    assert (kind_of(cause, state) in (Kind.DOUBTFUL, Kind.OURS)) or state is FAILED


def test_an_unknown_outcome_that_was_tried_in_vain_is_no_doubt_any_more() -> None:
    assert kind_of("timeout", DOUBT) is Kind.DOUBTFUL
    assert kind_of("timeout", FAILED) is Kind.TRANSIENT
    assert kind_of("worker_lost", DOUBT) is Kind.OURS
    assert kind_of("context_length", FAILED) is Kind.PERMANENT
    assert kind_of(None, FAILED) is Kind.TRANSIENT


@pytest.mark.parametrize(
    ("reason", "words", "command"),
    [
        ("auth", "OPENAI_API_KEY", "batchrun resume batch-001"),
        ("model_not_found", "'turbo' now", "batchrun submit jobs/job.json"),
        ("unreachable", ADDRESS, "batchrun resume batch-001"),
        ("endpoint_down", ADDRESS, "batchrun resume batch-001"),
        ("failures_in_a_row", "the endpoint's own log", "batchrun resume batch-001"),
        ("fail_on_error", "look at what failed", "batchrun resume batch-001"),
        ("trial_gate", "look at what failed", "batchrun resume batch-001"),
        ("budget", "max_cost_usd", "batchrun resume batch-001 --max-cost USD"),
        ("disk_full", "disk space", "batchrun resume batch-001"),
    ],
)
def test_every_guards_stop_says_what_to_do(reason: str, words: str, command: str) -> None:
    hint = hint_for_stop(a_job(state=JobState.PAUSED, reason=reason))
    assert hint is not None
    assert words in hint.words
    assert hint.command == command


def test_changes_are_accepted_beforehand_only_where_nothing_can_be_paid_twice() -> None:
    stopped = a_job(state=JobState.PAUSED, reason="model_not_found")
    commands = [hint.command for has in (True, False) if (hint := hint_for_stop(stopped, has_answers=has))]
    assert commands == ["batchrun submit jobs/job.json", "batchrun submit jobs/job.json --accept-changes"]


def test_a_pause_that_a_person_made_needs_no_advice() -> None:
    assert hint_for_stop(a_job(state=JobState.PAUSED, reason="paused_by_user")) is None
