"""What one input line may be: an OpenAI Batch line, a bare body, or a row for a template; all else is refused."""

from typing import Any, NamedTuple

from batchrun.core.client_options import CLIENT_OPTIONS_HINT, client_options_among
from batchrun.core.spec import ENDPOINT_PATHS
from batchrun.core.variables import IDS, example_variable
from batchrun.core.wording import clipped, kind, shown

CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES = ENDPOINT_PATHS
NEEDED_FIELD = {CHAT: "messages", COMPLETIONS: "prompt", EMBEDDINGS: "input", RESPONSES: "input"}
TOKEN_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # fields that bound an answer

_HOMES = {"messages": f'"{CHAT}"', "prompt": f'"{COMPLETIONS}"', "input": f'"{EMBEDDINGS}" (or "{RESPONSES}")'}
_WANTED = "fields wanted: custom_id, method, url, body; or messages, prompt or input"
_FOREIGN = {"request": "Gemini", "params": "Anthropic", "modelInput": "Bedrock"}
_ID_CHARS = 500
_OPTIONS = ("model", *TOKEN_LIMITS, "temperature", "top_p", "seed", "stop", "n", "tools", "response_format")
# Fields of the body that would be lost without a word if they stood beside it.
_BODY_FIELDS = frozenset({*NEEDED_FIELD.values(), *_OPTIONS})
# Fields that make a line with a prompt a request, and not a row of data that happens to have such a column.
_OF_REQUESTS = frozenset(
    {*_OPTIONS, "top_k", "stream", "dimensions", "encoding_format", "instructions", "logprobs", "echo", "suffix"}
)
_OF_RESPONSES = frozenset({"instructions", "max_output_tokens"})
_MESSAGE = '{"role": "user", "content": "..."}'
_SMALLEST = {"messages": f'"messages": [{_MESSAGE}]', "prompt": '"prompt": "..."', "input": '"input": "..."'}


class LineFault(Exception):
    """An input line that cannot become a request. Nothing was sent for it.

    `custom_id` is the line's own id where it has a usable one.
    """

    def __init__(self, what: str, hint: str, *, custom_id: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.custom_id = custom_id


class Call(NamedTuple):
    """What a line asks for, before the job's defaults."""

    custom_id: str | None  # None: the line has no id of its own
    path: str  # one of ENDPOINT_PATHS
    body: dict[str, Any]
    note: str | None = None  # what was taken out of the line's own body


def read_call(line: object, *, endpoint: str) -> Call:
    """Recognise one line; a line that names no path goes to the job's `endpoint`.

    Raises:
        LineFault: when it is no request, or holds what a request must not.
    """
    if not isinstance(line, dict):
        example = "jq -c '.[]' OLD > NEW" if isinstance(line, list) else f"{{{_SMALLEST[NEEDED_FIELD[endpoint]]}}}"
        raise LineFault(f"is {kind(line)}, not an object", f"write one object a line: {example}")
    is_batch = "body" in line or "url" in line or "method" in line
    custom_id = _read_id(line, is_needed=is_batch)
    try:
        path, body = _batch(line, endpoint) if is_batch else _bare(line, endpoint)
        _check_content(path, body)
        body, note = _answered_whole(path, body)
    except LineFault as fault:
        fault.custom_id = custom_id
        raise
    return Call(custom_id, path, body, note)


def is_row(line: object) -> bool:
    """Say whether a job with a prompt template takes this line as a row: every object that is no Batch line."""
    return isinstance(line, dict) and not isinstance(line.get("body"), dict)


def own_path(line: dict[str, Any]) -> str | None:
    """Return the path that a line goes to by its own fields, where no job says so; None where it may be a row of data.

    `prompt` and `input` are names of columns too: alone, or beside an id, they are data.
    """
    url, body = line.get("url"), line.get("body")
    if isinstance(body, dict):
        return url if isinstance(url, str) and url in NEEDED_FIELD else _path_for(body) or CHAT
    if isinstance(line.get("messages"), list):
        return CHAT
    is_request = not line.keys().isdisjoint(_OF_REQUESTS) and line.keys() <= _OF_REQUESTS | {*_HOMES, *IDS}
    return _path_for(line) if is_request else None


def _path_for(body: dict[str, Any]) -> str | None:
    field = next((name for name in _HOMES if name in body), None)
    if field == "input":
        return EMBEDDINGS if body.keys().isdisjoint(_OF_RESPONSES) else RESPONSES
    return next((path for path, needed in NEEDED_FIELD.items() if needed == field), None)


def read_row(line: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return a row's own id, None where it has none, and its other fields. They are data, never request fields.

    Raises:
        LineFault: when the id cannot be one.
    """
    return _read_id(line, is_needed=False), _without_id(line)


def row_body(prompt: str, *, endpoint: str) -> dict[str, Any]:
    """Return the smallest body that asks `endpoint` for this prompt."""
    field = NEEDED_FIELD[endpoint]
    return {field: [{"role": "user", "content": prompt}] if endpoint == CHAT else prompt}


def _without_id(line: dict[str, Any]) -> dict[str, Any]:
    if "custom_id" in line or "id" in line:
        return {name: value for name, value in line.items() if name not in IDS}
    return line


def _read_id(line: dict[str, Any], *, is_needed: bool) -> str | None:
    name, value = "custom_id", line.get("custom_id")
    if value is None and line.get("id") is not None:
        name, value = "id", line["id"]
    if type(value) is int:
        value = str(value)
    if isinstance(value, str):
        if not (value.isprintable() and 0 < len(value) <= _ID_CHARS and not value.isspace()):
            _check_id(name, value)
        return value
    if value is not None:
        raise LineFault(f"'{name}' must be a string, found {shown(value)}", "write the id as a string")
    if is_needed:
        seen = "is null" if "custom_id" in line else "is missing"
        raise LineFault(f"'custom_id' {seen}", "a Batch line needs an id of its own")
    return None


def _check_id(name: str, value: str) -> None:
    if not value or value.isspace():
        raise LineFault(f"'{name}' is {'blank' if value else 'empty'}", "an id needs a visible character")
    if len(value) > _ID_CHARS:
        raise LineFault(f"'{name}' has {len(value):,} characters, at most {_ID_CHARS} are allowed", "shorten it")
    for place, char in enumerate(value, start=1):
        code = ord(char)
        if code < 0x20 or 0x7F <= code < 0xA0:
            raise LineFault(f"'{name}' holds the control character U+{code:04X} (character {place})", "take it out")
        if 0xD800 <= code < 0xE000:
            raise LineFault(f"'{name}' holds half of a surrogate pair, U+{code:04X} (character {place})", "take it out")


def _batch(line: dict[str, Any], endpoint: str) -> tuple[str, dict[str, Any]]:
    method, url, body = line.get("method"), line.get("url"), line.get("body")
    _refuse_client_options(line)
    if not isinstance(body, dict):
        seen = f"must be an object, found {kind(body)}" if "body" in line else "is missing"
        raise LineFault(f"'body' {seen}", 'put the fields of the request into "body"')
    if method is not None and method != "POST":
        raise LineFault(f"'method' must be POST, found {shown(method)}", 'write "method": "POST"')
    _refuse_client_options(body)
    if not _BODY_FIELDS.isdisjoint(line):
        _refuse_fields_beside(line, body)
    if url is None:
        return _job_path(body, endpoint), body
    if type(url) is not str or url not in NEEDED_FIELD:
        raise _wrong_url(url)
    return url, body


def _refuse_fields_beside(line: dict[str, Any], body: dict[str, Any]) -> None:
    for name in line:
        if name in _BODY_FIELDS and name not in body:
            raise LineFault(f"'{name}' stands beside 'body' and would not be sent", f'put "{name}" into "body"')


def _wrong_url(url: object) -> LineFault:
    path = url.partition("?")[0].rstrip("/") if isinstance(url, str) else ""
    near = next((known for known in ENDPOINT_PATHS if path.endswith(known.removeprefix("/v1"))), CHAT)
    hint = f'write "url": "{near}"'
    if "://" in path or path.startswith("//"):
        # The address is not repeated: it may hold a password.
        return LineFault("'url' is a full address, only a path is allowed", f"{hint}; the address is OPENAI_BASE_URL")
    seen = shown(path if isinstance(url, str) else url)
    return LineFault(f"'url' must be one of {', '.join(ENDPOINT_PATHS)}, found {seen}", hint)


def _bare(line: dict[str, Any], endpoint: str) -> tuple[str, dict[str, Any]]:
    if _HOMES.keys().isdisjoint(line):
        raise _no_request(line)
    path = _job_path(line, endpoint)
    _refuse_client_options(line)
    return path, _without_id(line)


def _job_path(body: dict[str, Any], endpoint: str) -> str:
    """Return the job's endpoint when the body is of its kind."""
    needed = NEEDED_FIELD[endpoint]
    if needed not in body:
        for field, homes in _HOMES.items():
            if field in body:
                what = f"has '{field}', but the job's endpoint {endpoint} needs '{needed}'"
                raise LineFault(what, f'set "endpoint": {homes} in the job spec')
    return endpoint


def _refuse_client_options(fields: dict[str, Any]) -> None:
    if what := client_options_among(fields):
        raise LineFault(what, CLIENT_OPTIONS_HINT)


def _no_request(line: dict[str, Any]) -> LineFault:
    found = clipped(", ".join(name[:60] for name in list(line)[:20])) or "none"
    for field, vendor in _FOREIGN.items():
        if isinstance(line.get(field), dict):
            what = f"is of {vendor}'s batch format (fields found: {found}; {_WANTED})"
            return LineFault(what, "rewrite the file as OpenAI Batch lines")
    hint = "write one whole request a line"
    if line:
        hint += f'; for rows of data add "prompt_template" to the spec, such as "{example_variable(line)}"'
    return LineFault(f"holds no request (fields found: {found}; {_WANTED})", hint)


def _check_content(path: str, body: dict[str, Any]) -> None:
    """Check the one field that the path cannot do without."""
    field = NEEDED_FIELD[path]
    content = body.get(field)
    if content is None:
        others = (f'write "url": {homes}' for name, homes in _HOMES.items() if name in body and name != field)
        hint = next(others, f"write {_SMALLEST[field]}")
        raise LineFault(f"'{field}' is {'null' if field in body else 'missing'}, {path} needs it", hint)
    if field == "messages":
        _check_messages(content)
    elif not isinstance(content, str | list):
        what = f"'{field}' must be a string or an array, found {kind(content)}"
        raise LineFault(what, f"write {_SMALLEST[field]}")
    elif not content:
        raise LineFault(f"'{field}' is empty", f"write {_SMALLEST[field]}")


def _check_messages(messages: object) -> None:
    smallest = f"write {_SMALLEST['messages']}"
    if not isinstance(messages, list):
        raise LineFault(f"'messages' must be an array of objects, found {kind(messages)}", smallest)
    if not messages:
        raise LineFault("'messages' is empty, at least one message is needed", smallest)
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise LineFault(f"'messages[{place}]' must be an object, found {kind(message)}", f"write {_MESSAGE}")
        if not isinstance(message.get("role"), str):
            seen = f"found {kind(message['role'])}" if "role" in message else "it is missing"
            raise LineFault(f"'messages[{place}].role' must be a string, {seen}", f"write {_MESSAGE}")


def _answered_whole(path: str, body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Take out what would be answered by an event stream, refuse what would be answered by a promise.

    A stream holds the same answer, and costs the same; what is stored is the endpoint's own whole answer.
    """
    if path == RESPONSES and body.get("background") not in (None, False):
        raise LineFault(f"'background' is {shown(body['background'])}, answers are awaited", 'take "background" out')
    stream = body.get("stream")
    if stream is None or stream is False:
        return body, None
    if stream is not True:
        raise LineFault(f"'stream' must be true or false, found {shown(stream)}", 'take "stream" out')
    whole = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    return whole, "'stream' taken out: the answer comes whole"
