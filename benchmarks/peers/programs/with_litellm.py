"""A batch with LiteLLM's `batch_completion`, which keeps nothing to resume from: what a loop around a client is."""

import json
import os
import sys
from pathlib import Path

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm


def main(url: str, concurrency: int) -> None:
    """Send every prompt of `prompts.jsonl`, and write the answers at the end."""
    prompts = [json.loads(line)["prompt"] for line in Path("prompts.jsonl").read_text().splitlines()]
    messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
    answers = litellm.batch_completion(
        model="openai/mock", messages=messages, max_workers=concurrency, api_base=url, api_key="EMPTY"
    )
    Path("answers.jsonl").write_text("".join(json.dumps(str(answer)) + "\n" for answer in answers))


main(sys.argv[1], int(sys.argv[2]))
