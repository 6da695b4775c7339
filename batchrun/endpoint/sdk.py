"""OpenAI's own client, asked for what it would send: address, authorisation, organisation, project, its headers."""

import ssl

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Omit

from batchrun import __version__
from batchrun.endpoint.address import request_url

# Ready bytes go out over our own transport, so nothing unpacks a coding unasked.
TRANSPORT_HEADERS = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
# Left alone, LiteLLM sends upstream up to three times without a word, and each time may be billed.
NO_HIDDEN_RETRIES = {"x-litellm-num-retries": "0"}


class Client(AsyncOpenAI):
    """An `AsyncOpenAI` that never sends again by itself, and that says what a request of its own would look like."""

    def __init__(self, base_url: str, api_key: str, *, timeout_s: float) -> None:
        super().__init__(
            base_url=base_url, api_key=api_key, timeout=timeout_s, max_retries=0, http_client=_unused_transport()
        )

    @property
    def user_agent(self) -> str:
        return f"AsyncOpenAI/Python {self._version} batchrun/{__version__}"

    def ready_headers(self) -> dict[str, str]:
        """Return the headers that every request carries."""
        ours = {**self.auth_headers, **self.default_headers, **TRANSPORT_HEADERS, **NO_HIDDEN_RETRIES}
        return {name: value for name, value in ours.items() if not isinstance(value, Omit)}

    def ready_url(self, path: str) -> str:
        """Return the address of a path such as "/v1/chat/completions"."""
        return request_url(str(self.base_url).rstrip("/"), path)


def _unused_transport() -> DefaultAsyncHttpxClient:
    """Make the SDK's own transport, which never sends: one that trusts nobody is made in no time."""
    return DefaultAsyncHttpxClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False)
