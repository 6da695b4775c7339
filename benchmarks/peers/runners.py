"""The runners that are compared: how each is installed, and what a user of it types for a job that can be resumed."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
CONCURRENCY = 32


@dataclass(frozen=True)
class Runner:
    """One runner. `packages` are what its own environment gets from the package index; none for batchrun."""

    name: str
    packages: tuple[str, ...]
    command: Callable[[Path, str], list[str]]  # of the environment's folder of programs and the endpoint's address
    again: Callable[[Path, str], list[str]] | None = None  # what goes on after a crash; None: the same
    count_doubts: Callable[[Path], int] | None = None  # of a folder; None: it keeps no such account


def _program(name: str) -> Callable[[Path, str], list[str]]:
    return lambda programs, url: [str(programs / "python"), str(PROGRAMS / name), url, str(CONCURRENCY)]


def _batchrun(*arguments: str) -> Callable[[Path, str], list[str]]:
    return lambda _programs, _url: [sys.executable, "-m", "batchrun", *arguments, "-y", "--no-progress"]


def _doubts(folder: Path) -> int:
    command = [sys.executable, "-m", "batchrun", "status", "compared", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return int(json.loads(done.stdout)["counts"]["in_doubt"])


def _flexllm(programs: Path, url: str) -> list[str]:
    given = ["--base-url", url, "--api-key", "EMPTY", "-m", "mock", "-c", str(CONCURRENCY), "-uf", "prompt"]
    return [str(programs / "flexllm"), "batch", "prompts.jsonl", "-o", "answers.jsonl", *given]


def _batchllm(programs: Path, url: str) -> list[str]:
    given = ["--base-url", url, "--api-key", "EMPTY", "-m", "mock", "-c", str(CONCURRENCY), "--input-column", "prompt"]
    return [
        *(str(programs / "batchllm"), "run", "prompts.jsonl", "-o", "answers.jsonl"),
        *("--checkpoint", "checkpoint.jsonl", *given),
    ]


RUNNERS = (
    Runner("batchrun", (), _batchrun("submit", "job.json"), _batchrun("resume", "compared"), _doubts),
    Runner("async-batch-llm", ("async-batch-llm[openai]",), _program("with_async_batch_llm.py")),
    Runner("flexllm", ("flexllm",), _flexllm),
    Runner("batchllm-ai", ("batchllm-ai",), _batchllm),
    Runner("bespokelabs-curator", ("bespokelabs-curator",), _program("with_curator.py")),
    Runner("litellm", ("litellm",), _program("with_litellm.py")),
)
