"""What a case may expect, and what holds in every case.

exit codes stand with the steps. Here, each as one entry of `expect`:

counts         {state: n}                        items of the job
reason         the job's reason in the ledger
found          [ids]                             the items, in order
arrivals       {"total": n, "each": n, item: n}  n may be [least, most]
billed         the same, of what a provider would charge
says, never    [words]                           on any terminal, upper or lower case
texts          {item: text}                      of its answer; "*" with "<id>" in it stands for all
errors         {item: {"code": c, "says": w}}    of its line in the error file
outcomes       {item: [[state, cause], ...]}     of its attempts, in order
account        {item: {key: value}}              in the `batchrun` object of its line
usage          {key: value}                      of the job, as `status --json` has it
possible       n                                 requests possibly charged
gaps_s         {item: [least, most]}             between its first two arrivals; "*" is every item that has two
sent           {item: {key: value}}              fields of the body that arrived
duration_s     [least, most]                     of every attempt
note           {item: words}                     of `show`
nothing        true                              no ledger, no output, no request
input_kept     true                              the input is what it was, byte for byte
raw_at_most    {item: bytes}                     kept of what came for it
different_answers  true                          no answer stands under two ids
key_never      text                              nothing of it in the folder, the ledger or on a terminal
spread         {"after_s": s, "until_s": s, "most_in_100_ms": n}   arrivals, in seconds after the first
"""

from collections import Counter
from typing import Any

from sqlalchemy import select

from batchrun.core.states import ItemState, JobState
from batchrun.ledger.schema import attempts
from batchrun.runner.show import show_item
from tests.acceptance.case import TASK, Json, Played
from tests.acceptance.endpoint import Request
from tests.lab import assert_accounts_agree, strict_json

FINAL = (JobState.COMPLETED, JobState.CANCELLED)


def check(played: Played, *, input_before: bytes) -> None:
    """Check what always holds, and then what this case expects."""
    expect = played.case["expect"]
    _check_speech(played)
    if expect.get("nothing"):
        _check_nothing(played)
    else:
        _check_always(played)
    if expect.get("input_kept"):
        assert (played.lab.folder / "inputs" / "in.jsonl").read_bytes() == input_before
    for name, wanted in expect.items():
        if checker := CHECKERS.get(name):
            checker(played, wanted)


def fits(number: float, wanted: Any) -> bool:
    """Say whether a number is the wanted one, or lies between [least, most]."""
    return wanted[0] <= number <= wanted[1] if isinstance(wanted, list) else number == wanted


# -- in every case ------------------------------------------------------------------------------------------------


def _check_speech(played: Played) -> None:
    said = played.said
    assert "Traceback" not in said, said
    assert "unexpected" not in said, said
    assert "database is locked" not in said, said
    for words in played.case["expect"].get("says", []):
        assert words.lower() in said.lower(), f"nobody said {words!r}\n{said}"
    for words in played.case["expect"].get("never", []):
        assert words.lower() not in said.lower(), f"somebody said {words!r}\n{said}"


def _check_nothing(played: Played) -> None:
    assert played.endpoint.requests == []
    assert not (played.lab.folder / ".batchrun").exists()
    assert list((played.lab.folder / "outputs").iterdir()) == []


def _check_always(played: Played) -> None:
    standing = played.lab.standing(TASK)
    is_over = standing.job.state in FINAL
    assert_accounts_agree(played.lab, TASK, is_over=is_over)
    codes = [run.process.exitcode for run in played.runs if run.arguments[0] in ("submit", "resume")]
    assert codes[-1] != 0 or standing.counts[ItemState.COMPLETED] == standing.job.total
    assert played.lab.judged().max_in_flight <= standing.job.concurrency
    if is_over:
        done, failed = lines(played, "out.jsonl"), lines(played, "out.errors.jsonl")
        assert len(done) + len(failed) == standing.job.total
        assert len({line["custom_id"] for line in done + failed}) == standing.job.total
        assert len(done) == standing.counts[ItemState.COMPLETED]
        order = {name: place for place, name in enumerate(played.ids)}
        places = [order[line["custom_id"]] for line in done if line["custom_id"] in order]
        assert places == sorted(places)


def secrets_found(played: Played, key: str) -> list[str]:
    """Name every file of the folder, the ledger among them, that holds any part of the key of six characters."""
    parts = [key[at : at + 6].encode() for at in range(len(key) - 5)]
    given = (played.lab.folder / "inputs").iterdir()
    asked = b"".join(path.read_bytes() for path in given)
    found = []
    for path in sorted(played.lab.folder.rglob("*")):
        if path.is_file() and path.parent.name != "inputs" and path != played.lab.log:
            data = path.read_bytes()
            found += [f"{path.name}: {part!r}" for part in parts if part in data and part not in asked]
    return found


# -- in this case -------------------------------------------------------------------------------------------------


def lines(played: Played, name: str) -> list[Json]:
    """Read an output file."""
    path = played.lab.folder / "outputs" / name
    data = path.read_bytes()
    assert data == b"" or data.endswith(b"\n")
    return [strict_json(line) for line in data.split(b"\n")[:-1]]


def _line(played: Played, item: str) -> Json:
    both = lines(played, "out.jsonl") + lines(played, "out.errors.jsonl")
    return next(line for line in both if line["custom_id"] == item)


def _counts(played: Played, wanted: Json) -> None:
    counts = played.lab.standing(TASK).counts
    assert {state: counts[ItemState(state)] for state in wanted} == wanted or all(
        fits(counts[ItemState(state)], want) for state, want in wanted.items()
    ), counts


def _reason(played: Played, wanted: str) -> None:
    assert played.lab.standing(TASK).job.reason == wanted


def _found(played: Played, wanted: list[str]) -> None:
    both = [line["custom_id"] for line in lines(played, "out.jsonl") + lines(played, "out.errors.jsonl")]
    assert sorted(both) == sorted(wanted)


def _tally(counted: Counter[str], wanted: Json, known: list[str]) -> None:
    for name, want in wanted.items():
        match name:
            case "total":
                assert fits(counted.total(), want), counted
            case "each":
                others = [item for item in known if item not in wanted]
                assert all(fits(counted[item], want) for item in others), counted
            case _:
                assert fits(counted[name], want), (name, counted[name], want)


def _arrivals(played: Played, wanted: Json) -> None:
    _tally(Counter(request.item for request in played.endpoint.requests), wanted, played.ids)


def _billed(played: Played, wanted: Json) -> None:
    _tally(Counter(request.item for request in played.endpoint.requests if request.billed), wanted, played.ids)


def _texts(played: Played, wanted: Json) -> None:
    texts = {
        line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"]
        for line in lines(played, "out.jsonl")
    }
    for item, text in wanted.items():
        named = {item: text} if item != "*" else {name: text.replace("<id>", name) for name in texts}
        for name, want in named.items():
            assert texts[name] == want


def _errors(played: Played, wanted: Json) -> None:
    failed = {line["custom_id"]: line for line in lines(played, "out.errors.jsonl")}
    assert sorted(failed) == sorted(wanted), failed
    for item, want in wanted.items():
        error = failed[item]["error"]
        assert error["code"] == want["code"], error
        assert want.get("says", "").lower() in error["message"].lower(), error


def _shown(played: Played, item: str) -> Json:
    ledger = played.lab.ledger()
    try:
        return show_item(ledger, TASK, item)
    finally:
        ledger.close()


def _outcomes(played: Played, wanted: Json) -> None:
    for item, want in wanted.items():
        attempts = _shown(played, item)["attempts"]
        assert [[attempt["state"], attempt["cause"]] for attempt in attempts] == want, attempts


def _account(played: Played, wanted: Json) -> None:
    for item, want in wanted.items():
        ours = _line(played, item)["batchrun"]
        assert {name: ours[name] for name in want} == want, ours


def _usage(played: Played, wanted: Json) -> None:
    usage = played.lab.run("status", TASK, "--json").json["usage"]
    assert {name: usage[name] for name in wanted} == wanted, usage


def _possible(played: Played, wanted: Any) -> None:
    assert fits(played.lab.standing(TASK).attempts.possible_requests, wanted)


def _arrived(played: Played, item: str) -> list[Request]:
    return [request for request in played.endpoint.requests if request.item == item]


def _gaps(played: Played, wanted: Json) -> None:
    for item, want in wanted.items():
        for name in [item] if item != "*" else played.ids:
            at_s = [request.at_s for request in _arrived(played, name)[:2]]
            assert len(at_s) == 2 or item == "*", at_s
            assert len(at_s) < 2 or fits(at_s[1] - at_s[0], want), (name, at_s)


def _sent(played: Played, wanted: Json) -> None:
    for item, want in wanted.items():
        body = _arrived(played, item)[0].json
        assert {name: body.get(name) for name in want} == want, body


def _duration(played: Played, wanted: Any) -> None:
    for item in played.ids:
        for attempt in _shown(played, item)["attempts"]:
            assert fits(attempt["duration_s"], wanted), attempt


def _note(played: Played, wanted: Json) -> None:
    for item, words in wanted.items():
        assert words.lower() in str(_shown(played, item)["note"]).lower()


def _raw_at_most(played: Played, wanted: Json) -> None:
    for item, size in wanted.items():
        for attempt in _shown(played, item)["attempts"]:
            assert len(attempt["raw"] or b"") <= size


def _spread(played: Played, wanted: Json) -> None:
    arrived = _most_at_once([request.at_s for request in played.endpoint.requests], wanted)
    if arrived > wanted["most_in_100_ms"]:
        # The endpoint lives in the test's own process: where that stood still for a moment, what had left one by one
        # is seen at once. Then the times of the sends decide.
        ledger = played.lab.ledger()
        with ledger.read() as connection:
            sent = [row.sent_at for row in connection.execute(select(attempts.c.sent_at)) if row.sent_at is not None]
        ledger.close()
        assert _most_at_once(sent, wanted) <= wanted["most_in_100_ms"], arrived


def _most_at_once(times: list[float], wanted: Json) -> int:
    times = sorted(times)
    late = [at for at in times if wanted["after_s"] <= at - times[0] <= wanted["until_s"]]
    assert late
    return max(sum(at <= other < at + 0.1 for other in late) for at in late)


def _different_answers(played: Played, wanted: bool) -> None:
    answers = [line["response"]["body"]["id"] for line in lines(played, "out.jsonl")]
    assert (len(set(answers)) == len(answers)) is wanted


def _key_never(played: Played, wanted: str) -> None:
    assert secrets_found(played, wanted) == []


CHECKERS = {
    "counts": _counts,
    "reason": _reason,
    "found": _found,
    "arrivals": _arrivals,
    "billed": _billed,
    "texts": _texts,
    "errors": _errors,
    "outcomes": _outcomes,
    "account": _account,
    "usage": _usage,
    "possible": _possible,
    "gaps_s": _gaps,
    "sent": _sent,
    "duration_s": _duration,
    "note": _note,
    "raw_at_most": _raw_at_most,
    "spread": _spread,
    "different_answers": _different_answers,
    "key_never": _key_never,
}
