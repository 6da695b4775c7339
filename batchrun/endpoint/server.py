"""Which server answers: told by the list of its models, its headers and its own word on its version."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchrun.core.outcome import Reply
from batchrun.endpoint.gateway import gateway_of

# What servers write as the owner of their models.
OWNERS = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "library": "Ollama",
    "organization_owner": "LM Studio",
    "lmdeploy": "LMDeploy",
    "batchrun": "batchrun's mock",
}
REFUSES_OTHERS = ("vLLM", "OpenAI", "Ollama", "LiteLLM")  # a model that they do not list
VERSION_PATHS = {"vLLM": "/version", "SGLang": "/get_server_info"}  # beside /v1, not below it
# LiteLLM's list of models bears no mark of it; this page needs no key. Seen with 1.108.
LITELLM_PATH, LITELLM_WORDS = "/health/liveliness", b"I'm alive!"
ANY_MODEL = "*"  # in the list of a gateway that passes every name on


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of an endpoint's list."""

    name: str
    context_tokens: int | None  # prompt and answer together; None where the server does not tell


@dataclass(frozen=True, slots=True)
class Server:
    """What answers at an address, as far as it shows."""

    name: str | None
    gateway: str | None  # what stands before it
    models: tuple[Model, ...] | None  # None: it gives no list

    @property
    def refuses_others(self) -> bool:
        """Say whether a model that is not listed is certainly refused."""
        is_strict = self.name in REFUSES_OTHERS or self.gateway in REFUSES_OTHERS
        return is_strict and all(ANY_MODEL not in model.name for model in self.models or ())


def server_of(reply: Reply) -> Server:
    """Read a reply to GET /v1/models. A list of another shape counts as none."""
    entries = _entries(reply.body) if reply.status == 200 else None
    gateway = gateway_of(reply.headers)
    owners = {str(entry.get("owned_by")).lower() for entry in entries or ()}
    models = None if entries is None else tuple(Model(entry["id"], _context(entry)) for entry in entries)
    return Server(_name(owners, reply.headers, gateway), gateway, models)


def _entries(body: bytes) -> list[dict[str, Any]] | None:
    try:
        listed = json.loads(body)["data"]
        return [entry for entry in listed if isinstance(entry["id"], str)]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def _context(entry: Mapping[str, Any]) -> int | None:
    value = entry.get("max_model_len")  # vLLM's and SGLang's
    return value if type(value) is int and value > 0 else None


def _name(owners: set[str], headers: Mapping[str, str], gateway: str | None) -> str | None:
    if gateway == "LiteLLM":
        return None  # the owners are what its configuration says
    if "openai-version" in headers or "openai-processing-ms" in headers:
        return "OpenAI"
    named = {OWNERS[owner] for owner in owners if owner in OWNERS}
    if len(named) == 1:
        return named.pop()
    return "llama.cpp" if headers.get("server", "").lower().startswith("llama.cpp") else None


def version_of(reply: Reply) -> str | None:
    """Read a server's word on its version."""
    try:
        version = json.loads(reply.body)["version"] if reply.status == 200 else None
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return version if isinstance(version, str) and len(version) < 60 else None


def is_litellm(reply: Reply) -> bool:
    """Say whether a reply to `LITELLM_PATH` is a LiteLLM proxy's."""
    return reply.status == 200 and LITELLM_WORDS in reply.body[:100]
