"""Asking a server how many tokens a request's prompt has: vLLM's `/tokenize`, which generates and bills nothing.

The answer is of the whole prompt as the model gets it, chat template and generation prompt included; so is the
`prompt_tokens` of `usage`. Source: vLLM 0.32, entrypoints/serve/tokenize.
"""

import json

from batchrun.core.outcome import Reply
from batchrun.endpoint.client import Endpoint

PATH = "/tokenize"  # beside /v1, not below it
LIMIT_S = 10.0
MOST_TOKENS = 10**8
_KEPT = ("model", "messages", "prompt", "tools", "chat_template_kwargs")


async def count_tokens(endpoint: Endpoint, body: bytes) -> int | None:
    """Return how many tokens the prompt of a ready request has; None where the server does not tell."""
    fields = json.loads(body)
    asked = {name: fields[name] for name in _KEPT if name in fields}
    reply = await endpoint.post_unbilled(PATH, json.dumps(asked).encode(), limit_s=LIMIT_S)
    if not isinstance(reply, Reply) or reply.status != 200:
        return None
    try:
        count = json.loads(reply.body)["count"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None  # such as llama.cpp's page of the same name, which takes another question
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= MOST_TOKENS else None
