"""A refusal whose body shows that the work was done is no refusal, whatever its status says."""

import pytest

from batchrun.core.outcome import Charge
from batchrun.core.states import AttemptState
from tests.endpoint.replies import evidence, reply

ANSWER = [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}]
USAGE = {"prompt_tokens": 10, "completion_tokens": 5}


@pytest.mark.parametrize("status", [200, 400, 402, 409, 429, 500, 503, 529])
@pytest.mark.parametrize("code", [400, 429, 500])
@pytest.mark.parametrize(
    ("shown", "charge"),
    [
        ({"choices": ANSWER}, Charge.POSSIBLE),
        ({"usage": USAGE}, Charge.CERTAIN),
        ({"choices": ANSWER, "usage": USAGE}, Charge.CERTAIN),
    ],
)
def test_a_refusal_that_shows_work_is_never_called_free(
    status: int, code: int, shown: dict[str, object], charge: Charge
) -> None:
    found = evidence(reply(status, {"error": {"message": "no", "code": code}, **shown}))
    assert (found.outcome, found.charge) == (AttemptState.UNUSABLE, charge)
    assert found.raw is not None


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 9_000, "completion_tokens": 0}])
def test_a_refusal_that_only_counts_the_prompt_is_free(usage: object) -> None:
    found = evidence(reply(400, {"error": {"message": "too long"}, "usage": usage, "choices": []}))
    assert (found.outcome, found.charge) == (AttemptState.REFUSED, Charge.NONE)
