"""async-batch-llm: its plain form, without a store."""

import asyncio
import json
import os
import sys

from async_batch_llm import llm, process_prompts


async def main(path: str, concurrency: int) -> None:
    with open(path) as lines:
        asked = [json.loads(line)["body"]["messages"][0]["content"] for line in lines]
    batch = await process_prompts(llm("openai:mock"), asked, concurrency=concurrency, progress=False)
    if batch.failed:
        raise SystemExit(batch.summary())


os.environ |= {"OPENAI_BASE_URL": sys.argv[1], "OPENAI_API_KEY": "none"}
asyncio.run(main(sys.argv[2], int(sys.argv[3])))
