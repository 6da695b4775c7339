"""litellm: its `acompletion` under a semaphore, since its own batch call has no bound."""

import asyncio
import json
import sys

import litellm


async def main(base_url: str, path: str, concurrency: int) -> None:
    turns = asyncio.Semaphore(concurrency)

    async def ask(line: dict) -> dict:
        async with turns:
            answer = await litellm.acompletion(
                model="openai/mock", api_base=base_url, api_key="none", max_tokens=32, num_retries=0, **line["body"]
            )
        return {"custom_id": line["custom_id"], "response": answer.model_dump()}

    with open(path) as lines:
        answers = await asyncio.gather(*(ask(json.loads(line)) for line in lines))
    with open("out.jsonl", "w") as out:
        out.writelines(json.dumps(answer) + "\n" for answer in answers)


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
