"""Bespoke Curator: its own client of OpenAI's API, with its cache of answers, which it writes as it goes."""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

os.environ |= {"TELEMETRY_ENABLED": "false", "CURATOR_DISABLE_RICH_DISPLAY": "1", "HF_HUB_OFFLINE": "1"}
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "none"}
# It counts tokens by a file that it would fetch; litellm, which comes with it, has a copy.
os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(find_spec("litellm").origin).with_name("litellm_core_utils") / "tokenizers")

from bespokelabs import curator


def main(base_url: str, path: str, concurrency: int) -> None:
    with open(path) as lines:
        asked = [json.loads(line)["body"]["messages"][0]["content"] for line in lines]
    limits = {"max_requests_per_minute": 1_000_000, "max_tokens_per_minute": 1_000_000_000}
    params = {"base_url": base_url, "max_concurrent_requests": concurrency, "max_retries": 0, **limits}
    model = curator.LLM(model_name="mock", backend="openai", backend_params=params)
    if len(model(asked, working_dir=str(Path("cache").absolute())).dataset) != len(asked):
        raise SystemExit("not all were answered")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
