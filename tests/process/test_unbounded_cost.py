"""A limit on the cost of requests that are more than text: kept by the user's own bound, or refused before a send."""

import json
from decimal import Decimal

from tests.lab import Lab, assert_accounts_agree

PRICE = {"input_per_1m_usd": 1, "output_per_1m_usd": 1}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def write_pictures(lab: Lab, count: int) -> None:
    """Write lines of which the first asks for text alone."""
    bodies = [[{"type": "text", "text": f"[[a{number}]]"}, *([PICTURE] if number else [])] for number in range(count)]
    lines = [
        {"custom_id": f"a{number}", "messages": [{"role": "user", "content": parts}]}
        for number, parts in enumerate(bodies)
    ]
    (lab.folder / "inputs" / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_limit_that_nothing_could_keep_is_refused_with_the_line_before_anything_is_sent(lab: Lab) -> None:
    write_pictures(lab, 4)
    lab.write_spec(price=PRICE, max_cost_usd="1")
    said = "input line 2 (and 2 more) asks for 'image_url', and nothing tells how many tokens that may be"
    for command in ("validate", "submit"):
        run = lab.run(command, "jobs/job.json")
        assert run.wait() == 2
        assert said in run.err
    lab.write_spec(price=PRICE)
    assert said in lab.run("submit", "jobs/job.json", "--max-cost", "1").err
    lab.write_spec(price=PRICE, max_cost_usd="1", params={"web_search_options": {}, "plugins": [{"id": "web"}]})
    assert "'params' asks for 'plugins'" in lab.run("validate", "jobs/job.json").err
    assert lab.arrivals() == 0
    assert not (lab.folder / ".batchrun").exists()


def test_the_users_own_bound_is_set_aside_for_each_and_the_limit_holds(lab: Lab) -> None:
    """Each request may cost 1,064 millionths: under a limit of three of these, three fit at once, and no fourth."""
    write_pictures(lab, 8)
    limit = Decimal("0.0032")
    plain = {"trial": {"size": 0}, "concurrency": 8, "price": PRICE, "max_prompt_tokens": 1_000}
    lab.write_spec(**plain, max_cost_usd=str(limit))
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() in (0, 5), run.err
    assert Decimal(lab.run("cost", "--json").json["total"]["certain_usd"]) <= limit
    assert lab.judged().max_in_flight <= 3
    assert_accounts_agree(lab, is_over=run.wait() == 0)


def test_a_limit_that_comes_later_needs_the_bound_as_well(lab: Lab) -> None:
    write_pictures(lab, 4)
    lab.write_spec(price=PRICE, trial={"size": 1})
    assert lab.run("trial", "jobs/job.json").wait() == 0
    said = "items ask for more than text, and nothing tells how many tokens that may be"
    for command in (("set", "batch-001"), ("resume", "batch-001")):
        run = lab.run(*command, "--max-cost", "1")
        assert run.wait() == 2, run.err
        assert said in run.err
    sent = lab.arrivals()
    lab.write_spec(price=PRICE, trial={"size": 1}, max_prompt_tokens=1_000, max_cost_usd="1")
    assert lab.run("submit", "jobs/job.json").wait() == 0
    assert lab.arrivals() == 4 > sent
