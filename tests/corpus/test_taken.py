"""What looks strange and is right is taken and sent whole; and of faulty lines that are skipped nothing is sent."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.endpoint import ScriptedEndpoint
from tests.corpus.bad_lines import FAMILIES
from tests.lab import Lab, assert_accounts_agree, assert_outputs_whole, batch_line

Scripted = Callable[..., tuple[Lab, ScriptedEndpoint]]
BOM = b"\xef\xbb\xbf"
# What programs that split lines anywhere but at \n would cut, and what programs that clean texts would lose.
PROMPTS = {
    "a-line-separator": "one\u2028two",
    "a-paragraph-separator": "one\u2029two",
    "a-next-line": "one\u0085two",
    "a-form-feed": "one\ftwo\vthree\x1cfour\x1dfive\x1esix",
    "a-newline": "one\ntwo\r\nthree\rfour",
    "a-nul": "one\0two",
    "blanks": "  one \t ",
    "an-emoji": "\U0001f469\u200d\U0001f680",
    "a-mark": "\ufeffone",
    "quotes": "\u201cone\u201d 'two' \"three\" \\ \\u0041",
    "json": '{"messages": [{"role": "user"}]}',
    "braces": "{{ one }} {% two %} ${three}",
    "NaN": "NaN Infinity 1e999",
}


def raw_line(name: str, prompt: str, *, is_ascii: bool) -> bytes:
    messages = [{"role": "user", "content": f"[[{name}]]{prompt}"}]
    return json.dumps({"custom_id": name, "body": {"messages": messages}}, ensure_ascii=is_ascii).encode()


def sent_prompts(endpoint: ScriptedEndpoint) -> dict[str, str]:
    """Return what reached the endpoint, by item."""
    return {
        request.item: request.json["messages"][0]["content"].removeprefix(f"[[{request.item}]]")
        for request in endpoint.requests
    }


FORMS: dict[str, Callable[[list[bytes]], bytes]] = {
    "as it should be": lambda lines: b"\n".join(lines) + b"\n",
    "a byte order mark": lambda lines: BOM + b"\n".join(lines) + b"\n",
    "CRLF": lambda lines: b"\r\n".join(lines) + b"\r\n",
    "no last newline": lambda lines: b"\n".join(lines),
    "CRLF, a mark, and no last line end": lambda lines: BOM + b"\r\n".join(lines),
    "blank lines": lambda lines: b"\n\n \t\r\n" + b"\n\n\n".join(lines) + b"\n\n \n",
    "blanks around each line": lambda lines: b"\n".join(b"  \t" + line + b" \t " for line in lines),
}


@pytest.mark.process
@pytest.mark.parametrize("is_ascii", [True, False], ids=["escaped", "raw"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_file_is_taken_in_every_form_and_every_text_arrives_whole(
    form: Callable[[list[bytes]], bytes], is_ascii: bool, make_scripted: Scripted
) -> None:
    lab, endpoint = make_scripted()
    lines = [raw_line(name, prompt, is_ascii=is_ascii) for name, prompt in PROMPTS.items()]
    (lab.folder / "inputs" / "in.jsonl").write_bytes(form(lines))
    lab.write_spec()
    run = lab.run("submit", "jobs/job.json", "--no-trial")
    assert run.wait() == 0, run.err + run.out
    assert sent_prompts(endpoint) == PROMPTS
    assert_outputs_whole(lab, list(PROMPTS))


@pytest.mark.process
def test_half_of_a_pair_is_sent_as_a_replacement_character_and_recorded(make_scripted: Scripted) -> None:
    lab, endpoint = make_scripted()
    cut = raw_line("cut", "@ and @", is_ascii=True).replace(b"@", rb"\ud83d")
    whole = raw_line("whole", "@", is_ascii=True).replace(b"@", rb"\ud83d\ude80")
    (lab.folder / "inputs" / "in.jsonl").write_bytes(cut + b"\n" + whole + b"\n")
    lab.write_spec()
    assert lab.run("submit", "jobs/job.json").wait() == 0
    assert sent_prompts(endpoint) == {"cut": "\ufffd and \ufffd", "whole": "\U0001f680"}
    notes = [lab.run("show", "batch-001", name, "--json").json["note"] for name in ("cut", "whole")]
    assert notes == ["2 lone surrogates replaced by U+FFFD", None]


@pytest.mark.process
@pytest.mark.timeout(180)
def test_every_faulty_line_can_be_skipped_and_is_accounted_for(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    wrong = [bad for family in FAMILIES for bad in family()]
    good = [f"a{number:05d}" for number in range(len(wrong))]
    lines = [
        part for name, bad in zip(good, wrong, strict=True) for part in (batch_line(name).encode().rstrip(), bad.raw)
    ]
    (lab.folder / "inputs" / "in.jsonl").write_bytes(b"\n".join(lines))
    lab.write_spec(concurrency=64)
    run = lab.run("submit", "jobs/job.json", "--skip-invalid", "--json", timeout_s=120)
    assert run.wait() == 3, run.err + run.out
    counts = run.json["counts"]
    assert (counts["completed"], counts["rejected"], counts["total"]) == (len(good), len(wrong), 2 * len(wrong))
    assert_accounts_agree(lab)
    # The good ones and nothing else reached the endpoint, once each.
    assert sorted(lab.judged().items) == good
    assert lab.arrivals() == len(good)
    _assert_rejected(lab.lines("out.errors.jsonl"), len(wrong))
    assert [line["custom_id"] for line in lab.lines("out.jsonl")] == good


def _assert_rejected(lines: list[dict[str, Any]], count: int) -> None:
    """Every faulty line stands there once, with what is wrong with it, under its own id or its line's."""
    assert len(lines) == count
    assert {line["error"]["code"] for line in lines} == {"rejected"}
    assert all(line["error"]["message"] and line["response"] is None for line in lines)
    names = [line["custom_id"] for line in lines]
    assert len(set(names)) == count
    numbers = [int(name.removeprefix("line-")) for name in names if name.startswith("line-")]
    assert numbers == sorted(numbers)
    assert all(number % 2 == 0 for number in numbers)  # good and faulty ones take turns
    assert len(numbers) > count // 2


@pytest.mark.process
def test_a_key_with_a_stray_line_end_around_it_works(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(api_key="sk-Wq83nVzL0pTr5KyB")
    lab.write_input(2)
    lab.write_spec()
    run = lab.run("submit", "jobs/job.json", env={"OPENAI_API_KEY": ' "sk-Wq83nVzL0pTr5KyB"\r\n'})
    assert run.wait() == 0, run.err
