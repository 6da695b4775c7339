"""The cookbook's way: one loop that starts a request when there is room, asks over aiohttp, and appends each answer.

As in OpenAI's cookbook, the loop rests a millisecond after each start.
"""

import asyncio
import json
import sys

import aiohttp

REST_S = 0.001


async def main(base_url: str, path: str, concurrency: int) -> None:
    async with aiohttp.ClientSession() as session:
        under_way: set[asyncio.Task] = set()

        async def ask(line: dict) -> None:
            body = {"model": "mock", "max_tokens": 32, **line["body"]}
            async with session.post(f"{base_url}/chat/completions", json=body) as answer:
                found = await answer.json()
            with open("out.jsonl", "a") as out:
                out.write(json.dumps([line["custom_id"], found]) + "\n")

        with open(path) as lines:
            for text in lines:
                while len(under_way) >= concurrency:
                    await asyncio.sleep(REST_S)
                task = asyncio.create_task(ask(json.loads(text)))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(REST_S)
        await asyncio.gather(*under_way)


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
