"""A prefix cache, as vLLM has one: blocks of tokens, each known by what is before it; the least used go first.

What it holds depends on nothing but the order in which prompts came.
"""

import json
from collections import OrderedDict

TOKENS_PER_BLOCK = 16  # vLLM's default
BYTES_PER_TOKEN = 4  # as the mock counts
_READ_FIRST = ("model", "tools", "instructions", "messages", "prompt", "input")  # in the order of chat templates


class PrefixCache:
    """Remember so many blocks of the prompts that came last."""

    def __init__(self, blocks: int) -> None:
        self._room = blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()  # the least recently used first

    def read(self, body: bytes) -> int:
        """Read the prompt of a valid request; return how many of its tokens were there already."""
        text = _prompt(body)
        size = TOKENS_PER_BLOCK * BYTES_PER_TOKEN
        chain, before = [], 0
        for start in range(0, len(text) - size + 1, size):  # whole blocks only
            before = hash((before, text[start : start + size]))
            chain.append(before)
        found = next((no for no, block in enumerate(chain) if block not in self._blocks), len(chain))
        for block in reversed(chain):  # the end of a prompt is forgotten before its beginning
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._room:
            self._blocks.popitem(last=False)
        return found * TOKENS_PER_BLOCK


def count_prompt(body: bytes) -> int:
    """Return how many tokens the prompt of a valid request has, whatever else the request asks for."""
    return max(1, len(_prompt(body)) // BYTES_PER_TOKEN)


def _prompt(body: bytes) -> bytes:
    fields = json.loads(body)
    return json.dumps([fields.get(name) for name in _READ_FIRST]).encode()
