"""A resumable job with async-batch-llm, as its documentation does it: an artifact store with fsync, and resume."""

import asyncio
import json
import sys
from pathlib import Path

from async_batch_llm import ArtifactIdentity, JsonlArtifactStore, llm, process_prompts
from async_batch_llm.artifacts import ResumePolicy


async def main(url: str, concurrency: int) -> None:
    """Send every prompt of `prompts.jsonl`; what the store has is not sent again."""
    prompts = [json.loads(line)["prompt"] for line in Path("prompts.jsonl").read_text().splitlines()]
    identity = ArtifactIdentity(provider="mock", model="mock")
    store = JsonlArtifactStore("store.jsonl", identity=identity, fsync=True)
    resume = next(policy for policy in ResumePolicy if policy.name != "NONE")
    batch = await process_prompts(
        llm("openai:mock", base_url=url, api_key="EMPTY"),
        prompts,
        concurrency=concurrency,
        artifact_store=store,
        resume=resume,
    )
    print(batch.summary())


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
