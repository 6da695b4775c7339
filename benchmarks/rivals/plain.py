"""The plain script: AsyncOpenAI, a semaphore, gather; nothing is written down before the end."""

import asyncio
import json
import sys

from openai import AsyncOpenAI


async def main(base_url: str, path: str, concurrency: int) -> None:
    client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
    turns = asyncio.Semaphore(concurrency)

    async def ask(line: dict) -> dict:
        async with turns:
            answer = await client.chat.completions.create(model="mock", max_tokens=32, **line["body"])
        return {"custom_id": line["custom_id"], "response": answer.model_dump()}

    with open(path) as lines:
        answers = await asyncio.gather(*(ask(json.loads(line)) for line in lines))
    with open("out.jsonl", "w") as out:
        out.writelines(json.dumps(answer) + "\n" for answer in answers)


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
