"""Where a model is missing, the stop names those that are there: the likeliest first, and once."""

import asyncio
from pathlib import Path

import pytest

from batchrun.core.breaker import Trip
from batchrun.ledger.ledger import Ledger
from batchrun.runner.ends import End, EndKind
from batchrun.runner.models import is_listed, models_words, name_models, warnings_within
from tests.runner.jobs import a_job

MANY = [f"model-{number}" for number in range(25)]


@pytest.mark.parametrize(
    ("names", "wanted", "words"),
    [
        (["gpt-4o", "gpt-4o-mini"], ["gpt-4o-mimi"], "Did you mean 'gpt-4o-mini'? It also has 'gpt-4o'"),
        (
            ["meta-llama/Llama-3.1-8B-Instruct", "qwen"],
            ["llama-3.1-8b"],
            "Did you mean 'meta-llama/Llama-3.1-8B-Instruct'?",
        ),
        (["Qwen2.5-7B"], ["qwen2.5-7b"], "Did you mean 'Qwen2.5-7B'? It has no other"),
        (["mistral", "qwen"], ["gpt-oss-120b"], "The endpoint has 'mistral', 'qwen'"),
        (["a", "b"], ["llama"], "The endpoint has 'a', 'b'"),
        ([], ["x"], "The endpoint lists no model at all"),
        (MANY, ["other"], "'model-9' and 15 more"),
        (["x/"], ["y/"], "'x/'"),
    ],
)
def test_models_are_named_likeliest_first(names: list[str], wanted: list[str], words: str) -> None:
    assert words in models_words(names, wanted)


def test_of_several_wanted_models_the_nearest_counts() -> None:
    assert models_words(["alpha", "omega"], ["zzz", "omega1"]).startswith("Did you mean 'omega'?")


def test_at_most_ten_are_named() -> None:
    assert models_words(MANY, ["model-7"]).count("'model-") == 10


class Listing:
    """An endpoint that lists these models, and counts how often it is asked."""

    def __init__(self, names: list[str] | None, *, hangs: bool = False) -> None:
        self.address = "http://127.0.0.1:8000/v1"
        self.names = names
        self.asked = 0
        self.hangs = hangs
        self.is_closed = False

    async def models(self) -> list[str] | None:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        return self.names

    async def close(self) -> None:
        self.is_closed = True


MISSING = End(EndKind.TRIPPED, Trip("model_not_found", "404 Not Found: no such model.", 5))


def named(end: End, listing: Listing, folder: Path) -> End:
    ledger = Ledger(f"sqlite:///{folder}/ledger.db", folder=folder)
    try:
        return asyncio.run(name_models(end, [listing], ledger, a_job()))
    finally:
        ledger.close()


def test_a_stop_for_a_missing_model_asks_once_and_says_more(tmp_path: Path) -> None:
    listing = Listing(["turbo-2"])
    end = named(MISSING, listing, tmp_path)
    assert end.trip is not None
    assert end.trip.message == "404 Not Found: no such model. Did you mean 'turbo-2'? It has no other"
    assert (end.trip.reason, end.trip.exit_code, listing.asked) == ("model_not_found", 5, 1)


def test_an_endpoint_that_lists_nothing_is_no_new_fault(tmp_path: Path) -> None:
    assert named(MISSING, Listing(None), tmp_path) == MISSING


@pytest.mark.parametrize(
    "end",
    [End(EndKind.DONE), End(EndKind.TRIPPED, Trip("auth", "401 Unauthorized", 4)), End(EndKind.DRAINED, signal=2)],
)
def test_no_other_end_asks(end: End, tmp_path: Path) -> None:
    listing = Listing(["turbo-2"])
    assert named(end, listing, tmp_path) == end
    assert listing.asked == 0


def test_each_endpoint_that_does_not_list_the_model_is_named_and_the_others_are_not() -> None:
    typo, silent, empty, right = Listing(["turbo-2"]), Listing(None), Listing([]), Listing(["turbo-1", "turbo-2"])
    asked = [typo, silent, empty, right]
    said = warnings_within([(one, ["turbo-1"]) for one in asked], within_s=30)
    assert said == [f"{typo.address} does not list 'turbo-1'. Did you mean 'turbo-2'? It has no other"]
    assert all(one.asked == 1 and one.is_closed for one in asked)


def test_an_endpoint_that_does_not_answer_keeps_nobody_from_starting() -> None:
    hanging, typo = Listing(["a"], hangs=True), Listing(["turbo-2"])
    assert len(warnings_within([(hanging, ["turbo-1"]), (typo, ["turbo-1"])], within_s=0.2)) == 1
    assert hanging.is_closed


@pytest.mark.parametrize(
    ("wanted", "names", "is_there"),
    [
        ("a", ["b", "a"], True),
        ("llama3", ["llama3:latest"], True),
        ("llama3", ["llama3:8b"], False),
        ("gemini-x", ["models/gemini-x"], True),
        ("openai/gpt-x", ["openai/*"], True),
        ("gpt-x", ["*"], True),
        ("gpt-x", ["openai/*"], False),
        ("A", ["a"], False),
        ("a[1]", ["a[1]"], True),
    ],
)
def test_a_model_is_listed_under_its_name_and_the_ways_that_servers_write_it(
    wanted: str, names: list[str], is_there: bool
) -> None:
    assert is_listed(wanted, names) is is_there
