"""`price_from`: prices that are looked up are said, kept with their source, and reckoned with like written ones."""

import json
from collections.abc import Callable
from decimal import Decimal

import pytest

from batchrun.ledger.events import read_events
from batchrun.ledger.jobs import find_job
from tests.lab import Lab, assert_accounts_agree

pytest.importorskip("genai_prices")

MODEL = {"model": "gpt-4o-mini", "trial": {"size": 0}}


def test_a_looked_up_price_is_said_kept_with_its_source_and_limits_the_job(lab: Lab) -> None:
    lab.write_input(8)
    lab.write_spec(**MODEL, price_from="genai-prices:openai", max_cost_usd="1")
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() == 0, run.err
    assert "price $0.15 in, $0.6 out" in run.err
    receipt = lab.run("cost", "--json")
    assert receipt.wait() == 0, receipt.err
    bill = receipt.json
    assert bill["price"]["source"].startswith("genai-prices ")
    assert bill["price"]["source"].endswith(": openai, gpt-4o-mini")
    total = bill["total"]
    tokens = Decimal("0.15") * total["prompt_tokens"] + Decimal("0.6") * total["completion_tokens"]
    assert Decimal(total["certain_usd"]) == tokens / 1_000_000 > 0
    ledger = lab.ledger()
    with ledger.read() as connection:
        events = read_events(connection, find_job(connection, "batch-001").id, kind="registered")
    ledger.close()
    assert events[0]["detail"]["prices"]["price"]["source"] == bill["price"]["source"]
    assert_accounts_agree(lab)


def test_a_shadow_of_a_spec_has_the_price_on_its_own_side_alone(lab: Lab, make_lab: Callable[..., Lab]) -> None:
    other = make_lab("other")
    assert other.base_url is not None
    lab.write_input(4)
    lab.write_spec(**MODEL, price_from="genai-prices:openai")
    run = lab.run("compare", "jobs/job.json", "--shadow", other.base_url, "--share", "100", "--json")
    assert run.wait() == 0, run.err
    assert run.err.count("price $0.15 in, $0.6 out") == 1
    jobs = lab.run("ls", "--json")
    assert jobs.wait() == 0, jobs.err
    bills = {}
    for name in (one["job_id"] for one in jobs.json["jobs"]):
        receipt = lab.run("cost", name, "--json")
        assert receipt.wait() == 0, receipt.err
        bills[name[-1]] = receipt.json
    assert bills["a"]["price"]["source"].endswith(": openai, gpt-4o-mini")
    assert bills["b"]["price"] is None


def test_a_price_that_is_not_known_is_said_before_anything_is_written_or_sent(lab: Lab) -> None:
    lab.write_input(2)
    lab.write_spec(**MODEL, price_from="genai-prices")
    for command in ("validate", "submit"):
        run = lab.run(command, "jobs/job.json")
        assert run.wait() == 2, run.err
        assert f"knows no provider at {lab.base_url}" in run.err
        assert 'hint: write "price" into the spec, or take price_from out' in run.err
    assert lab.arrivals() == 0
    assert not (lab.folder / ".batchrun").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"model": "gpt-4o"}, "the lines ask for models of different prices: gpt-4o, gpt-4o-mini"),
        ({"service_tier": "flex"}, "requests of service_tier flex have a price of their own"),
    ],
)
def test_lines_of_other_prices_than_the_jobs_are_not_priced_as_if_they_were_not(
    lab: Lab, body: dict[str, str], said: str
) -> None:
    messages = [{"role": "user", "content": "hello"}]
    lines = [{"messages": messages}, {"messages": messages, "temperature": 0, **body}]
    (lab.folder / "inputs" / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    lab.write_spec(**MODEL, price_from="genai-prices:openai")
    run = lab.run("validate", "jobs/job.json")
    assert run.wait() == 2
    assert said in run.err


def test_of_several_endpoints_only_those_without_a_price_are_looked_up(lab: Lab) -> None:
    lab.write_input(4)
    free = {"input_per_1m_usd": 0, "output_per_1m_usd": 0}
    other = lab.base_url.replace("127.0.0.1", "localhost")
    lab.write_spec(
        **MODEL,
        base_url=None,
        price_from="genai-prices:openai",
        endpoints=[{"base_url": lab.base_url, "price": free}, {"base_url": other}],
    )
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() == 0, run.err
    told = lab.run("cost")
    assert told.wait() == 0
    assert f"{lab.base_url}  $0 in, $0 out, a million tokens (from the spec)" in told.out
    assert "$0.15 in, $0.6 out" in told.out
    assert ": openai, gpt-4o-mini)" in told.out
