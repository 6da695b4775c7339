"""aiperf: a load generator, with its own workers and its own counts; it keeps no answers."""

import json
import subprocess
import sys
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def save_tokenizer(folder: str) -> None:
    """Save one that knows no word: it would fetch one otherwise, and the server's counts are taken."""
    words = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(folder)


def main(base_url: str, path: str, concurrency: int) -> None:
    with open(path) as lines:
        asked = [json.loads(line)["body"]["messages"][0]["content"] for line in lines]
    Path("asked.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in asked))
    save_tokenizer("tokenizer")
    options = {
        "--model": "mock",
        "--url": base_url.removesuffix("/v1"),
        "--endpoint-type": "chat",
        "--concurrency": str(concurrency),
        "--request-count": str(len(asked)),
        "--input-file": "asked.jsonl",
        "--custom-dataset-type": "single_turn",
        "--tokenizer": str(Path("tokenizer").absolute()),
        "--ui": "none",
    }
    command = [str(Path(sys.executable).with_name("aiperf")), "profile", "--use-server-token-count"]
    subprocess.run([*command, *(word for pair in options.items() for word in pair)], check=True)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
