"""flexllm: its own batch call, which appends what it has to a file."""

import asyncio
import json
import sys

from flexllm import OpenAIClient


async def main(base_url: str, path: str, concurrency: int) -> None:
    client = OpenAIClient(
        base_url=base_url, api_key="none", model="mock", concurrency_limit=concurrency, max_qps=None, retry_times=0
    )
    with open(path) as lines:
        asked = [json.loads(line)["body"]["messages"] for line in lines]
    found = await client.chat_batch(asked, show_progress=False, output_jsonl="out.jsonl", max_tokens=32)
    found.raise_for_errors()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
