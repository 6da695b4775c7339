"""Credentials, addresses, headers and client options: what a request's body must never carry.

A client that spreads a body over its own arguments obeys some of them, and so do gateways: a line could send the key
elsewhere, or have itself sent and billed twice.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from batchrun.core.wording import quoted

_CREDENTIALS = """
api_key x_api_key api_token access_token bearer_token auth_token token authorization auth credentials password secret
organization project
"""
_ADDRESSES = """
base_url api_base api_host azure_endpoint azure_deployment endpoint_url server_url websocket_base_url proxy proxies
api_version api_type
"""
_OPTIONS = """
headers default_headers extra_headers custom_headers default_query extra_query query_params extra_body extra_json
cookies timeout request_timeout stream_timeout max_retries num_retries http_client idempotency_key
"""


def _spellings(word: str) -> Iterable[str]:
    parts = word.split("_")
    titles = [part.capitalize() for part in parts]
    yield from ("_".join(parts), "-".join(parts), "".join(parts), "-".join(titles), "".join(titles))
    yield from ("".join([parts[0], *titles[1:]]), "_".join(parts).upper())


CLIENT_OPTIONS = frozenset(
    spelling for word in (_CREDENTIALS + _ADDRESSES + _OPTIONS).split() for spelling in _spellings(word)
)


def client_options_among(fields: Mapping[str, Any]) -> str | None:
    """Say what is wrong with `fields` when credentials, addresses or client options stand there; None is fine.

    Each is named; their values are not repeated, for a value may be a key.
    """
    if CLIENT_OPTIONS.isdisjoint(fields):
        return None
    names = [quoted(name) for name in fields if name in CLIENT_OPTIONS]
    verb = "does" if len(names) == 1 else "do"
    return f"{', '.join(names)} {verb} not belong in a request: keys, addresses and client options are not obeyed there"


CLIENT_OPTIONS_HINT = "take it out; set OPENAI_BASE_URL, OPENAI_API_KEY or the job spec's timeout_s instead"
