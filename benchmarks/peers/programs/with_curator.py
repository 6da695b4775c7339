"""A job with Bespoke Curator; its cache of responses is what it resumes from."""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

os.environ |= {"TELEMETRY_ENABLED": "false", "CURATOR_DISABLE_RICH_DISPLAY": "1", "HF_HUB_OFFLINE": "1"}
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "EMPTY"}
# It counts tokens by a file that it would fetch; litellm, which comes with it, has a copy.
os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(find_spec("litellm").origin).with_name("litellm_core_utils") / "tokenizers")

from bespokelabs import curator


def main(url: str, concurrency: int) -> None:
    """Send every prompt of `prompts.jsonl`."""
    prompts = [json.loads(line)["prompt"] for line in Path("prompts.jsonl").read_text().splitlines()]
    limits = {"max_requests_per_minute": 1_000_000, "max_tokens_per_minute": 1_000_000_000}
    params = {"base_url": url, "max_concurrent_requests": concurrency, "require_all_responses": False, **limits}
    model = curator.LLM(model_name="mock", backend="openai", backend_params=params)
    print(len(model(prompts, working_dir=str(Path("cache").absolute())).dataset))


main(sys.argv[1], int(sys.argv[2]))
