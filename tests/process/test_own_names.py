"""Endpoints with names of their own for the model, and one address under several keys: judged by what arrived."""

from collections import Counter
from collections.abc import Callable

from batchrun.mock.process import MockProcess
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab, assert_accounts_agree, assert_outputs_whole
from tests.process.steps import ids
from tests.process.test_several_endpoints import answered, make_several

__all__ = ["make_several"]

KEYS = {"KEY_A": "sk-first-0123456789abcdef", "KEY_B": "sk-second-fedcba9876543210"}
FREE = {"input_per_1m_usd": 0, "output_per_1m_usd": 0}
PRICED = {"input_per_1m_usd": 1, "output_per_1m_usd": 1}


def test_each_endpoint_is_asked_for_the_model_by_its_own_name(
    make_several: Callable[..., tuple[Lab, list[MockProcess]]],
) -> None:
    names = ["vendor/one", "one-v2", "mock"]
    lab, mocks = make_several(*[{"models": [name], "strict_models": True, "latency_ms": 20.0} for name in names])
    lab.write_input(40)
    own = [{"base_url": mock.base_url, "model": name} for mock, name in zip(mocks, names, strict=True)]
    del own[2]["model"]  # it knows the job's
    lab.write_spec(endpoints=own, idempotency_header="Idempotency-Key")
    looked = lab.run("doctor", "jobs/job.json")
    assert all(f"{name} is listed" in looked.out for name in names)
    run = lab.run("submit", "jobs/job.json", "--no-trial", "--no-progress")
    assert run.wait() == 0, run.err
    assert "does not list" not in run.err
    assert answered(mocks) == Counter(ids(40))
    assert all(mock.stats()["posts"] > 0 for mock in mocks)


def test_two_keys_of_one_address_are_two_accounts_and_one_that_is_refused_leaves_the_other(
    make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]],
) -> None:
    """The first key is refused from the start; no doubt of it, and none of its items, is lost or asked twice."""
    refusal = {"status": 401, "json": {"error": {"message": "wrong key", "code": "invalid_api_key"}}}
    rules = [{"when": {"key_is_not": f"Bearer {KEYS['KEY_B']}"}, "shared": True, "replies": [refusal], "then": "again"}]
    lab, endpoint = make_scripted(rules=rules, default={"content": "yes", "delay_s": 0.05})
    lab.write_input(30)
    lab.write_spec(endpoints=[{"base_url": endpoint.base_url, "api_key_env": name} for name in KEYS])
    run = lab.run("submit", "jobs/job.json", "--no-trial", "--no-progress", env=KEYS)
    assert run.wait() == 0, run.err
    assert f"going on without {endpoint.base_url} (KEY_A)" in run.err
    assert_outputs_whole(lab, ids(30))
    assert_accounts_agree(lab)
    written = b"".join(path.read_bytes() for path in lab.folder.rglob("*") if path.is_file())
    assert not any(key.encode() in written for key in KEYS.values())


def test_each_of_two_keys_has_its_own_limit_price_and_line_in_the_receipt(
    make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]],
) -> None:
    """Of one account three requests break off: they stay in doubt there, and the other key asks none of them."""
    cut = [f"a{number:05d}" for number in (3, 11, 17)]
    rules = [{"when": {"item": cut}, "replies": [{"break_at": "request", "billed": True}], "then": "default"}]
    lab, endpoint = make_scripted(rules=rules, default={"content": "yes", "delay_s": 0.05})
    lab.write_input(30)
    own = [
        {"base_url": endpoint.base_url, "api_key_env": name, "concurrency": 2, "price": price}
        for name, price in zip(KEYS, (FREE, PRICED), strict=True)
    ]
    lab.write_spec(endpoints=own)
    run = lab.run("submit", "jobs/job.json", "--no-trial", "--no-progress", env=KEYS)
    assert run.wait() == 6, run.err
    used = Counter(request.headers["authorization"].removeprefix("Bearer ") for request in endpoint.requests)
    assert set(used) == set(KEYS.values())
    assert max(Counter(request.item for request in endpoint.requests).values()) == 1, "no doubt was asked again"
    bill = lab.run("cost", "--json").json
    lines = {line["endpoint"]: line["bill"] for line in bill["by_endpoint"]}
    names = {f"{endpoint.base_url} ({name})": key for name, key in KEYS.items()}
    assert {name: line["requests"] for name, line in lines.items()} == {name: used[key] for name, key in names.items()}
    free, priced = (lines[name] for name in names)
    assert free["certain_usd"] == "0.00"
    assert priced["certain_usd"] != "0.00"
    assert f"{endpoint.base_url} (KEY_B)  $1 in, $1 out" in lab.run("cost").out
