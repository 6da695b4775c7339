"""`init`: what it makes runs as it stands, what is there is left alone, and data is looked at first."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchrun.cli.main import run
from batchrun.files.inputs import read_items
from batchrun.runner.check import check
from batchrun.runner.columns import likeliest
from tests.cli.contract import read_stream
from tests.lab import Lab, assert_accounts_agree, batch_line

JOB = "jobs/job.json"
SEVEN = {"task_id", "model", "input_file", "output_file", "max_tokens", "concurrency", "retry_times"}
Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Return a function that runs a command in an empty folder; it returns the exit code and all that was said."""
    monkeypatch.chdir(tmp_path)

    def say(*arguments: str) -> tuple[int, str]:
        code = run(arguments)
        told = capsys.readouterr()
        return code, told.out + told.err

    return say


def spec(folder: str = ".") -> dict[str, Any]:
    value: dict[str, Any] = json.loads((Path(folder) / JOB).read_text())
    return value


def prompts() -> list[str]:
    """Return what the job that was made would ask, item by item."""
    checked = check(Path(JOB))
    items = read_items(checked.input, checked.defaults, checked.survey)
    bodies = [json.loads(item.request.body) for item in items]  # type: ignore[union-attr]
    return [body["messages"][0]["content"] for body in bodies]


def files(folder: Path = Path()) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- a new project ----------------------------------------------------------------------------------------------------


def test_what_is_made_passes_validate_and_names_it_as_the_next_command(say: Say) -> None:
    code, said = say("init")
    assert code == 0
    assert said.splitlines()[-1] == "next:  batchrun validate jobs/job.json"
    assert sorted(files()) == [".env.example", ".gitignore", "inputs/batch_input.jsonl", JOB]
    assert Path("outputs").is_dir()
    assert set(spec()) == SEVEN
    assert say("validate", JOB)[0] == 0
    assert len(prompts()) == 3


def test_what_is_made_runs(lab: Lab) -> None:
    for name in ("jobs", "inputs", "outputs"):
        (lab.folder / name).rmdir()
    assert lab.run("init", "--model", "mock").wait() == 0
    assert lab.run("submit", JOB).wait() == 0
    assert_accounts_agree(lab)
    assert [line["custom_id"] for line in lab.lines("batch_output.jsonl")] == ["capital", "rivers", "translate"]


def test_a_folder_that_is_named_is_made_and_the_way_there_is_said(say: Say) -> None:
    code, said = say("init", "new/my batch")
    assert code == 0
    assert said.splitlines()[-1] == "next:  cd 'new/my batch' && batchrun validate jobs/job.json"
    os.chdir("new/my batch")
    assert say("validate", JOB)[0] == 0


def test_the_flags_stand_in_the_job(say: Say) -> None:
    code, said = say("init", "--model", "m-1", "--base-url", "127.0.0.1:8000/v1/chat/completions", "--self-hosted")
    assert code == 0
    assert spec()["model"] == "m-1"
    assert spec()["base_url"] == "http://127.0.0.1:8000/v1"
    assert spec()["on_unknown"] == "retry"
    assert set(spec()) == SEVEN | {"base_url", "on_unknown"}
    assert "OPENAI_BASE_URL=http://127.0.0.1:8000/v1\n" in Path(".env.example").read_text()
    assert "placeholder" not in said
    assert "paid twice" not in said


def test_a_model_that_was_not_named_is_called_a_placeholder(say: Say) -> None:
    assert "'my-model' is a placeholder" in say("init")[1]


def test_a_hosted_endpoint_called_self_hosted_is_remarked_on(say: Say) -> None:
    assert "paid twice" in say("init", "--self-hosted", "--base-url", "https://api.example.com/v1")[1]


@pytest.mark.parametrize(
    ("base_url", "words"),
    [("ftp://x", "ftp"), ("https://sk-key@x/v1", "credentials"), ("", "empty"), ("http://h/v1?key=1", "query")],
)
def test_an_address_that_is_none_is_refused_before_anything_is_made(base_url: str, words: str, say: Say) -> None:
    code, said = say("init", "--base-url", base_url)
    assert code == 2
    assert words in said
    assert "sk-key" not in said
    assert list(Path().iterdir()) == []


def test_the_example_environment_holds_no_secret_and_changes_nothing_as_it_stands(say: Say) -> None:
    say("init")
    Path(".env.example").rename(".env")
    (value,) = read_stream(say("config", "show", "--json")[1])
    given = {one["from"] for one in value["settings"] if one["source"] == "env_file"}
    assert given == {"OPENAI_BASE_URL"}


def test_git_is_told_to_keep_neither_the_ledger_nor_keys_nor_answers(say: Say) -> None:
    say("init")
    assert Path(".gitignore").read_text().split() == [".batchrun/", ".env", "outputs/"]


# -- what is there ----------------------------------------------------------------------------------------------------


def test_a_second_time_changes_nothing_and_says_so(say: Say) -> None:
    say("init")
    before = files()
    code, said = say("init")
    assert code == 0
    assert files() == before
    assert said.count("(it was there)") == 3
    assert "note" not in said
    assert said.splitlines()[-1] == "next:  batchrun validate jobs/job.json"


def test_what_is_there_is_left_alone_whatever_it_is(say: Say) -> None:
    Path("jobs").mkdir()
    Path(JOB).symlink_to("nowhere.json")
    Path(".gitignore").write_text("*.pyc\n/outputs/*\n.env\n")
    before = files()
    code, said = say("init", "--model", "another")
    assert code == 0
    assert {name: data for name, data in files().items() if name in before} == before
    assert Path(JOB).is_symlink()
    assert f"kept  {JOB} (it was there)" in said
    assert '"model": "another"' in said  # what it would have been
    assert ".gitignore does not name .batchrun/:" in said
    assert not Path("inputs/batch_input.jsonl").exists()


def test_what_is_missing_again_is_made_again(say: Say) -> None:
    say("init")
    Path("inputs/batch_input.jsonl").unlink()
    Path(JOB).unlink()
    Path("outputs").rmdir()
    say("init")
    assert say("validate", JOB)[0] == 0


@pytest.mark.parametrize("name", ["jobs", "outputs", "new"])
def test_a_file_where_a_folder_should_be_is_named(name: str, say: Say) -> None:
    Path(name).write_text("mine")
    code, said = say("init", *(["new"] if name == "new" else []))
    assert code == 2
    assert f"{name}' is no folder" in said
    assert Path(name).read_text() == "mine"


def test_the_object_says_what_was_made_and_kept(say: Say) -> None:
    first, second = (read_stream(say("init", "x", "--json")[1])[0] for _ in range(2))
    assert first["made"] == ["inputs/batch_input.jsonl", JOB, ".env.example", ".gitignore"]
    assert (first["kept"], second["made"]) == ([], [])
    assert (first["folder"], first["columns"]) == ("x", None)
    assert second["spec"] == first["spec"] == spec("x")


# -- from data --------------------------------------------------------------------------------------------------------

TICKETS = 'id,subject,Ticket Text,label\n1,Refund,"Where is my, refund?",x\n2,Login,I cannot log in,y\n'


def test_data_gets_a_job_of_its_own_where_there_is_one_already(say: Say) -> None:
    say("init")
    for folder in ("a", "b"):
        Path(folder).mkdir()
        (Path(folder) / "tickets.csv").write_text(TICKETS)
    before = Path(JOB).read_bytes()
    for source, job in (("a", "jobs/tickets.json"), ("b", "jobs/tickets-2.json"), ("a", "jobs/tickets.json")):
        code, said = say("init", "--from", f"{source}/tickets.csv", "--model", "m")
        assert code == 0
        assert said.splitlines()[-1] == f"next:  batchrun validate {job}"
    assert f"kept  {job} (it was there)" in said
    assert Path(JOB).read_bytes() == before
    assert say("validate", "jobs/tickets.json", "jobs/tickets-2.json")[0] == 0  # no two share a name or an output


def test_rows_get_a_template_for_the_likeliest_column(say: Say) -> None:
    Path("tickets.csv").write_text(TICKETS)
    code, said = say("init", "--from", "tickets.csv", "--model", "m")
    assert code == 0
    assert "the columns subject, Ticket Text, label" in said
    assert spec()["prompt_template"] == "{{ row['Ticket Text'] }}"
    assert spec()["input_file"] == "./tickets.csv"
    assert spec()["task_id"] == "tickets"
    assert say("validate", JOB)[0] == 0
    assert prompts() == ["Where is my, refund?", "I cannot log in"]
    assert not Path("inputs/batch_input.jsonl").exists()


def as_jsonl(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize(
    ("name", "data", "asked"),
    [
        ("a.jsonl", as_jsonl({"question": "Why?", "answer": "because of a long, long text"}), ["Why?"]),
        ("a.jsonl", as_jsonl({"id": 7, "prompt": "Hello"}, {"id": 8, "prompt": "Bye"}), ["Hello", "Bye"]),
        ("a.jsonl", b"\xef\xbb\xbf\r\n" + as_jsonl({"notes": "a longer text", "city": "Lima"}), ["a longer text"]),
        ("a.jsonl.gz", gzip.compress(as_jsonl({"text": "packed"}), mtime=0), ["packed"]),
        ("a.csv.gz", gzip.compress(b"text;n\npacked;1\n", mtime=0), ["packed"]),
        ("a.tsv", b"text\tn\ntabbed\t1\n", ["tabbed"]),
        ("A B.csv", b"n,if\n1,asked for\n", ["asked for"]),
        ("a.csv", b"messages,n\nin a table this is a column,1\n", ["in a table this is a column"]),
        ("it's.csv", b'"it\'s ""it""",n\nwhat?,1\n', ["what?"]),
    ],
)
def test_what_init_makes_of_rows_asks_with_them(name: str, data: bytes, asked: list[str], say: Say) -> None:
    Path(name).write_bytes(data)
    code, said = say("init", "--from", name)
    assert code == 0, said
    assert say("validate", JOB)[0] == 0
    assert prompts() == asked


def test_rows_of_parquet(say: Say) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"n": [1, 2], "instruction": ["one", "two"]})
    parquet.write_table(table, "rows.pq")
    assert say("init", "--from", "rows.pq")[0] == 0
    assert prompts() == ["one", "two"]


@pytest.mark.parametrize(
    ("line", "endpoint", "model"),
    [
        (batch_line("x", "hi"), None, "my-model"),
        (batch_line("x", "hi", model="theirs"), None, "theirs"),
        (json.dumps({"custom_id": "x", "body": {"prompt": "hi"}}), "/v1/completions", "my-model"),
        (
            json.dumps({"custom_id": "x", "url": "/v1/embeddings", "body": {"input": "hi"}}),
            "/v1/embeddings",
            "my-model",
        ),
        (json.dumps({"messages": [{"role": "user", "content": "hi"}], "model": "theirs"}), None, "theirs"),
        (json.dumps({"prompt": "hi", "max_tokens": 3}), "/v1/completions", "my-model"),
        (json.dumps({"input": "hi", "model": "e"}), "/v1/embeddings", "e"),
        (json.dumps({"input": "hi", "instructions": "be brief"}), "/v1/responses", "my-model"),
    ],
)
def test_lines_that_are_requests_are_taken_as_they_are(line: str, endpoint: str | None, model: str, say: Say) -> None:
    Path("in.jsonl").write_text(line.rstrip() + "\n")
    code, said = say("init", "--from", "in.jsonl")
    assert code == 0
    assert "the lines are requests" in said
    assert "prompt_template" not in spec()
    assert (spec().get("endpoint"), spec()["model"]) == (endpoint, model)
    assert say("validate", JOB)[0] == 0


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("none.csv", None, "does not exist"),
        ("a.jsonl", b"", "is empty"),
        ("a.csv", b"a,b\n", "is empty"),
        ("a.jsonl", b"[1]\n", "no object"),
        ("a.jsonl", b"{oops\n", "JSON"),
        ("a.csv", b"a,a\n1,2\n", "twice"),
        ("a.csv.gz", b"\x1f\x8b\x08 cut", "gzip"),
        ("a.jsonl", as_jsonl({"n": 1, "m": None}), "no column with text (columns: n, m)"),
        ("a.jsonl", as_jsonl({"custom_id": "x", "params": {"messages": []}}), "Anthropic"),
    ],
)
def test_data_of_which_nothing_can_be_made_is_refused_before_anything_is_made(
    name: str, data: bytes | None, words: str, say: Say
) -> None:
    if data is not None:
        Path(name).write_bytes(data)
    before = files()
    code, said = say("init", "--from", name)
    assert code == 2
    assert words in said
    assert "Traceback" not in said
    assert files() == before
    assert not Path("jobs").exists()


def test_data_elsewhere_is_named_so_that_the_job_finds_it(say: Say, tmp_path: Path) -> None:
    Path("data").mkdir()
    Path("data/t.csv").write_text(TICKETS)
    assert say("init", "project", "--from", "data/t.csv")[0] == 0
    os.chdir("project")
    assert spec()["input_file"] == str(tmp_path / "data" / "t.csv")
    assert say("validate", JOB)[0] == 0


@pytest.mark.parametrize(
    "name", ["x_output.jsonl", "x_output.errors.jsonl", "...csv.jsonl", "-\u00fc-.jsonl", "a" * 120 + ".jsonl"]
)
def test_any_name_of_the_data_makes_a_job_that_can_be_run(name: str, say: Say) -> None:
    Path("outputs").mkdir()
    (Path("outputs") / name).write_bytes(as_jsonl({"text": "hi"}))
    assert say("init", "--from", f"outputs/{name}")[0] == 0
    code, said = say("validate", JOB)
    assert code == 0, said


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"title": "a b", "body": "c"}, "body"),
        ({"user_questions": "a", "context": "a much longer text"}, "user_questions"),
        ({"userQuestion": "a", "longer": "aaaa"}, "userQuestion"),
        ({"expected_text": "a", "notes": "b"}, "notes"),
        ({"answer": "a"}, "answer"),
        ({"a": "x", "b": "xx", "c": 5}, "b"),
        ({"prompt": 5, "b": "xx"}, "b"),
        ({"a": "  ", "b": 1}, None),
    ],
)
def test_the_column_that_is_asked_with(row: dict[str, Any], column: str | None) -> None:
    assert likeliest(list(row), [row]) == column


def test_a_column_with_gaps_comes_after_one_without() -> None:
    rows = [{"a": "long text here", "b": "x"}, {"a": "", "b": "y"}]
    assert likeliest(["a", "b"], rows) == "b"
