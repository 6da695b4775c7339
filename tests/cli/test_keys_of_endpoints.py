"""Which key goes to which of several endpoints, and which goes to none."""

from typing import Any

import pytest

from batchrun.core.spec import EndpointSpec
from batchrun.errors import EndpointFault
from batchrun.settings import Settings
from batchrun.wiring import Access, name_endpoints

HERE, ALSO_HERE, NEAR = "http://127.0.0.1:8000/v1", "http://127.0.0.1:8001/v1", "http://10.0.0.5:8000/v1"
FAR, OTHER = "https://api.example.com/v1", "https://llm.example.org/v1"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    monkeypatch.setenv("OWN", "sk-of-its-own")
    monkeypatch.setenv("SHARED", "sk-for-all-of-them")


def keys(*addresses: str, own: dict[str, str] | None = None, api_key_env: str | None = None) -> list[str]:
    several = [EndpointSpec(base_url=at, api_key_env=(own or {}).get(at)) for at in addresses]
    settings: Any = Settings()
    named = name_endpoints(settings, base_url=None, api_key_env=api_key_env, endpoints=several)
    return [one.access(settings).key for one in named]


@pytest.mark.parametrize(
    ("addresses", "own", "api_key_env", "expected"),
    [
        ((HERE, ALSO_HERE), {}, None, ["sk-of-the-environment"] * 2),  # one host, whatever the port
        ((HERE, NEAR), {}, None, ["EMPTY", "EMPTY"]),  # two hosts: whose key it is nobody has said
        ((HERE, FAR), {}, None, ["EMPTY", "sk-of-the-environment"]),  # a local one never gets the provider's
        ((HERE, FAR), {HERE: "OWN"}, None, ["sk-of-its-own", "sk-of-the-environment"]),
        ((FAR, OTHER), {OTHER: "OWN"}, None, ["sk-of-the-environment", "sk-of-its-own"]),
        ((FAR, OTHER, NEAR), {}, "SHARED", ["sk-for-all-of-them"] * 3),  # said in the spec
        ((FAR, OTHER), {FAR: "OWN"}, "SHARED", ["sk-of-its-own", "sk-for-all-of-them"]),
    ],
)
def test_a_key_goes_where_somebody_has_said_that_it_goes_and_to_one_host_otherwise(
    addresses: tuple[str, ...], own: dict[str, str], api_key_env: str | None, expected: list[str]
) -> None:
    assert keys(*addresses, own=own, api_key_env=api_key_env) == expected


@pytest.mark.parametrize(
    ("addresses", "own", "said"),
    [
        ((FAR, OTHER), {}, "which key is for which endpoint is not said: api.example.com, llm.example.org"),
        ((FAR, "https://api.example.com"), {}, "names https://api.example.com/v1 twice"),
        ((FAR, HERE), {FAR: "NOWHERE"}, "'NOWHERE' (api_key_env) is not set"),
        (("ftp://x", HERE), {}, "ftp"),
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_is_sent(
    addresses: tuple[str, ...], own: dict[str, str], said: str
) -> None:
    with pytest.raises(EndpointFault) as caught:
        keys(*addresses, own=own)
    assert said in caught.value.message
    assert caught.value.hint


def test_one_address_under_two_keys_is_two_endpoints_each_named_after_its_variable() -> None:
    settings: Any = Settings()
    several = [EndpointSpec(base_url=at, api_key_env=own) for at, own in ((FAR, "OWN"), (FAR, "SHARED"), (HERE, "OWN"))]
    named = name_endpoints(settings, base_url=None, api_key_env=None, endpoints=several)
    assert [one.name for one in named] == [f"{FAR} (OWN)", f"{FAR} (SHARED)", HERE]
    assert [one.access(settings).key for one in named] == ["sk-of-its-own", "sk-for-all-of-them", "sk-of-its-own"]


def test_whose_answers_they_are_depends_on_the_key_and_on_the_model_that_is_asked_for() -> None:
    accesses = [
        Access(FAR, key, EndpointSpec(base_url=FAR, model=model))
        for key, model in (("sk-a", None), ("sk-b", None), ("sk-a", "x"), ("sk-a", "y"))
    ]
    assert len({one.account for one in accesses}) == 4
    assert accesses[0].account == Access(FAR, "sk-a").account
