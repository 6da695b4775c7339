"""A request for the job's model goes out under the endpoint's name for it, and otherwise byte for byte as it is."""

import json

from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from batchrun.core.model_name import asking_for
from batchrun.core.request import Defaults, build_request

DEFAULTS = Defaults("m", 64, "/v1/chat/completions", {})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text().filter(lambda name: name not in ("model", "messages")), VALUES, max_size=4))
def test_only_the_name_changes(more: dict[str, object]) -> None:
    own = to_json({"messages": [{"role": "user", "content": 'say "model":"m"'}], **more, "model": "m"})
    sent = asking_for(own, "m", "other/m")
    assert sent == to_json({**json.loads(own), "model": "other/m"})
    assert json.loads(sent) == {**json.loads(own), "model": "other/m"}


def test_a_line_that_names_a_model_of_its_own_keeps_it() -> None:
    line = {"messages": [{"role": "user", "content": "a"}], "model": "another"}
    body = build_request(line, DEFAULTS).body
    assert asking_for(body, "m", "other/m") is body
