"""OpenAI's own client, asked for what it would send: address, authorisation, organisation, project, its headers."""

import ssl

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Omit

from batchrun import __version__
from batchrun.endpoint.address import request_url
from batchrun.errors import EndpointFault

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
        """Return the headers that every request carries.

        Raises:
            EndpointFault: one of them, from the environment, holds a line break or another control character.
        """
        ours = {**self.auth_headers, **self.default_headers, **TRANSPORT_HEADERS, **NO_HIDDEN_RETRIES}
        found = {name: value for name, value in ours.items() if not isinstance(value, Omit)}
        for name, value in found.items():
            if not value.isprintable():
                hint = "look at the OPENAI_* variables, such as OPENAI_ORG_ID: one holds a line break"
                raise EndpointFault(
                    f"the header {name!r} cannot be sent: its value holds a control character", hint=hint
                )
        return found

    def ready_url(self, path: str) -> str:
        """Return the address of a path such as "/v1/chat/completions"."""
        return request_url(str(self.base_url).rstrip("/"), path)


def _unused_transport() -> DefaultAsyncHttpxClient:
    """Make the SDK's own transport, which never sends: one that trusts nobody is made in no time."""
    return DefaultAsyncHttpxClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False)
