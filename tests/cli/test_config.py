"""`config show`: every setting with its origin, what holds for a spec or a job, and never a key or a password."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from batchrun.cli.main import run
from batchrun.core.spec import JobSpec
from batchrun.runner.effective import without_secret
from batchrun.settings import Settings, load_settings, origins
from tests.cli.contract import read_stream
from tests.lab import Lab

SECRET = "sk-Wq83nVzL0pTr5KyB"
Values = dict[str, tuple[Any, str, str | None]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Return a function that runs `config show ... --json` in the folder."""

    def show(*arguments: str, before: Sequence[str] = (), code: int = 0) -> dict[str, Any]:
        assert run([*before, "config", "show", *arguments, "--json"]) == code
        (value,) = read_stream(capsys.readouterr().out)
        return value

    return show


def table(values: list[dict[str, Any]]) -> Values:
    return {value["name"]: (value["value"], value["source"], value["from"]) for value in values}


def write_spec(**changes: Any) -> None:
    spec = {
        "task_id": "a",
        "model": "m",
        "input_file": "inputs/in.jsonl",
        "output_file": "outputs/out.jsonl",
        "max_tokens": 16,
        "concurrency": 4,
        "retry_times": 0,
    }
    Path("jobs/a.json").write_text(json.dumps(spec | changes))


# -- settings ---------------------------------------------------------------------------------------------------------


def test_without_a_word_everything_is_a_default(shown: Callable[..., dict[str, Any]]) -> None:
    value = shown()
    settings = table(value["settings"])
    assert list(settings) == list(Settings.model_fields)
    assert {source for _, source, _ in settings.values()} == {"default"}
    assert settings["db"][0] == "sqlite:///.batchrun/ledger.db"
    assert value["env_file"] == {"path": ".env", "is_read": False}
    assert value["jobs"] == []


def test_each_place_wins_over_the_ones_behind_it(
    shown: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(".env").write_text(
        "OPENAI_BASE_URL=http://127.0.0.1:1\nBATCHRUN_BASE_URL=http://127.0.0.1:2\nBATCHRUN_DB=sqlite:///file.db\n"
    )

    def base_url() -> tuple[Any, str, str | None]:
        return table(shown()["settings"])["base_url"]

    assert base_url() == ("http://127.0.0.1:2", "env_file", "BATCHRUN_BASE_URL")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:3")
    assert base_url() == ("http://127.0.0.1:3", "environment", "OPENAI_BASE_URL")
    monkeypatch.setenv("BATCHRUN_BASE_URL", "http://127.0.0.1:4")
    assert base_url() == ("http://127.0.0.1:4", "environment", "BATCHRUN_BASE_URL")
    monkeypatch.setenv("BATCHRUN_BASE_URL", "")
    assert base_url() == ("http://127.0.0.1:3", "environment", "OPENAI_BASE_URL")
    monkeypatch.setenv("BATCHRUN_DB", "sqlite:///env.db")
    assert table(shown()["settings"])["db"] == ("sqlite:///env.db", "environment", "BATCHRUN_DB")
    for before in ((), ("--db", "sqlite:///flag.db")):
        after = () if before else ("--db", "sqlite:///flag.db")
        assert table(shown(*after, before=before)["settings"])["db"] == ("sqlite:///flag.db", "flag", "--db")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", [name for name in Settings.model_fields if name not in ("db", "broker")])
def test_what_is_said_of_a_setting_s_origin_is_where_it_is_taken_from(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two are read by different code: here each variable is set, in the environment and in the file."""
    value = {"on_unknown": "retry", "home": "elsewhere", "base_url": "http://x", "worker_name": "w"}.get(name, "7")
    assert origins()[name] == ("default", None)
    Path(".env").write_text(f"BATCHRUN_{name.upper()}={value}\n")
    assert str(_revealed(name)) in (value, "7.0")
    assert origins()[name] == ("env_file", f"BATCHRUN_{name.upper()}")
    Path(".env").unlink()
    monkeypatch.setenv(f"batchrun_{name}", value)  # in any case of letters, as pydantic-settings has it
    assert str(_revealed(name)) in (value, "7.0")
    assert origins()[name] == ("environment", f"BATCHRUN_{name.upper()}")


def _revealed(name: str) -> object:
    settings = load_settings()
    return settings.reveal_key() if name == "api_key" else getattr(settings, name)


def test_another_env_file_is_read_where_one_is_named(shown: Callable[..., dict[str, Any]]) -> None:
    Path("other.env").write_text("BATCHRUN_ON_UNKNOWN=retry\n")
    value = shown("--env-file", "other.env")
    assert value["env_file"] == {"path": "other.env", "is_read": True}
    assert table(value["settings"])["on_unknown"] == ("retry", "env_file", "BATCHRUN_ON_UNKNOWN")


# -- a spec -----------------------------------------------------------------------------------------------------------


def test_a_spec_is_filled_in_with_what_would_hold_now(
    shown: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_spec(trial={"size": 3}, api_key_env="MY_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", "127.0.0.1:8000/v1/chat/completions")
    monkeypatch.setenv("MY_KEY", SECRET)
    (job,) = shown("jobs/a.json")["jobs"]
    values = table(job["values"])
    assert (job["job_id"], job["spec"]) == ("a", "jobs/a.json")
    plain = {name for name in JobSpec.model_fields if name not in ("trial", "price")}
    assert plain | {"api_key", "trial.size", "trial.sample", "trial.seed", "price"} <= set(values)
    assert values["model"] == ("m", "spec", None)
    assert values["base_url"] == ("http://127.0.0.1:8000/v1", "environment", "OPENAI_BASE_URL")
    assert values["api_key"] == ("set", "environment", "MY_KEY")
    assert values["on_unknown"] == ("hold", "default", None)
    assert values["trial.size"] == (3, "spec", None)
    assert values["trial.sample"] == ("stratified", "default", None)
    assert values["error_file"] == ("outputs/out.errors.jsonl", "default", None)
    assert values["timeout_s"] == (600.0, "default", None)


def test_a_spec_s_own_word_wins(shown: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    write_spec(base_url="http://10.0.0.1:9/v1/", on_unknown="hold", error_file="outputs/e.jsonl")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("BATCHRUN_ON_UNKNOWN", "retry")
    (job,) = shown("jobs/a.json")["jobs"]
    values = table(job["values"])
    assert values["base_url"] == ("http://10.0.0.1:9/v1", "spec", None)
    assert values["on_unknown"] == ("hold", "spec", None)
    assert values["error_file"] == ("outputs/e.jsonl", "spec", None)
    write_spec()
    (job,) = shown("jobs/a.json")["jobs"]
    assert table(job["values"])["on_unknown"] == ("retry", "environment", "BATCHRUN_ON_UNKNOWN")


def test_every_spec_of_a_file_of_lines_is_shown(shown: Callable[..., dict[str, Any]]) -> None:
    write_spec()
    line = Path("jobs/a.json").read_text()
    Path("jobs/all.jsonl").write_text(line + "\n" + line + "\n")
    assert [job["spec"] for job in shown("jobs/all.jsonl")["jobs"]] == [
        "jobs/all.jsonl line 1",
        "jobs/all.jsonl line 2",
    ]


def test_a_faulty_spec_is_named_and_its_input_not_looked_for(shown: Callable[..., dict[str, Any]]) -> None:
    write_spec(modle="x")
    (fault,) = shown("jobs/a.json", code=2)["error"]["faults"]
    assert fault["where"] == "jobs/a.json line 1"
    assert "does not exist" in shown("./jobs/none.json", code=2)["error"]["message"]
    assert shown("none", code=2)["error"]["kind"] == "job_not_found"


# -- a job of the ledger ----------------------------------------------------------------------------------------------


def test_a_job_is_shown_as_the_ledger_has_it_now(lab: Lab) -> None:
    lab.write_input(3)
    lab.write_spec(timeout_s=30, price={"input_per_1m_usd": 1, "output_per_1m_usd": 2})
    assert lab.run("submit", "jobs/job.json", "--max-cost", "5", env={"OPENAI_API_KEY": SECRET}).wait() == 0
    assert lab.run("resume", "batch-001", "-c", "3").wait() == 0
    run_ = lab.run("config", "show", "batch-001", "--json", env={"OPENAI_BASE_URL": ""})
    assert run_.wait() == 0, run_.err
    (job,) = read_stream(run_.out)[0]["jobs"]
    assert (job["job_id"], job["spec"]) == ("batch-001", None)
    values = table(job["values"])
    assert values["concurrency"] == (3, "job", None)
    assert values["max_cost_usd"] == ("5.00", "job", None)
    assert values["timeout_s"] == (30.0, "job", None)
    assert values["price.output_per_1m_usd"] == ("2", "job", None)
    assert values["base_url"] == (lab.base_url, "job", None)  # as it was submitted, where nothing says otherwise now
    assert values["on_unknown"] == ("hold", "default", None)
    assert values["endpoint_down_limit_s"] == (1800.0, "default", None)
    assert values["error_file"][1] == "default"
    asked = lab.run("config", "show", "batch-001", "--json", env={"BATCHRUN_ON_UNKNOWN": "retry"})
    assert table(asked.json["jobs"][0]["values"])["on_unknown"] == ("retry", "environment", "BATCHRUN_ON_UNKNOWN")
    assert table(asked.json["jobs"][0]["values"])["base_url"] == (lab.base_url, "environment", "OPENAI_BASE_URL")


# -- secrets, and the eye ---------------------------------------------------------------------------------------------


def test_no_key_and_no_password_is_ever_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_spec(base_url=f"https://{SECRET}:@api.example.invalid/v1")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", f"https://me:{SECRET}@example.invalid/v1?api_key={SECRET}")
    monkeypatch.setenv("BATCHRUN_DB", f"postgresql://me:{SECRET}/x@y@127.0.0.1/db?password={SECRET}")
    monkeypatch.setenv("BATCHRUN_BROKER", f"redis://:{SECRET}@127.0.0.1:6379/0")
    for arguments in (["config", "show"], ["config", "show", "jobs/a.json"]):
        for more in ([], ["--json"]):
            assert run([*arguments, *more]) == 0
            told = capsys.readouterr()
            assert SECRET not in told.out + told.err
            assert "set" in told.out


@pytest.mark.parametrize(
    ("address", "shown_as"),
    [
        ("sqlite:///.batchrun/ledger.db", "sqlite:///.batchrun/ledger.db"),
        ("postgresql://me@h/db", "postgresql://me@h/db"),
        ("postgresql://me:p/a@ss@h:5/db", "postgresql://me:***@h:5/db"),
        ("redis://:secret@h:1/0", "redis://:***@h:1/0"),
        ("https://key@h/v1", "https://***@h/v1"),
        ("https://h/v1?a=1&api-key=s&b=2", "https://h/v1?a=1&api-key=***&b=2"),
        ("postgresql://h/db?sslpassword=s", "postgresql://h/db?sslpassword=***"),
    ],
)
def test_an_address_is_shown_without_its_secrets(address: str, shown_as: str) -> None:
    assert without_secret(address) == shown_as


def test_the_table_is_aligned_and_fits_eighty_columns(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_spec(prompt_template="line one\nline two {{ x }}", on_unknown="retry")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    Path(".env").write_text(f"OPENAI_API_KEY={SECRET}\nBATCHRUN_THROTTLE_BUDGET_S=60\n")
    assert run(["config", "show", "jobs/a.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in lines if not line.startswith("  ")] == ["spec jobs/a.json", "", "settings (.env is read)"]
    for part in (lines[1 : lines.index("")], lines[lines.index("") + 2 :]):
        value_at = {len(line) - len(line.split(None, 2)[2]) for line in part if ".env " not in line}
        assert len(value_at) == 1, part
    assert any(line.split() == ["throttle_budget_s", ".env", "BATCHRUN_THROTTLE_BUDGET_S", "60.0"] for line in lines)
    assert any(line.endswith("line one\\nline two {{ x }}") for line in lines)
