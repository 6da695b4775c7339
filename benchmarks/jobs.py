"""Jobs to measure with."""

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def write_job(folder: Path, lines: Iterable[Line], *, concurrency: int, name: str = "bench", **spec: Any) -> None:
    """Write a spec and its input."""
    for place in ("jobs", "inputs", "outputs"):
        (folder / place).mkdir(exist_ok=True)
    with (folder / "inputs" / "in.jsonl").open("w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    whole = {
        "task_id": name,
        "model": "mock",
        "input_file": "inputs/in.jsonl",
        "output_file": "outputs/out.jsonl",
        "max_tokens": 32,
        "concurrency": concurrency,
        "retry_times": 3,
        **spec,
    }
    (folder / "jobs" / "job.json").write_text(json.dumps(whole))


def line(number: int, text: str, *, system: str | None = None, **body: Any) -> Line:
    """Make an OpenAI Batch line; its prompt begins with its name."""
    messages = [{"role": "user", "content": f"[[r{number:07d}]] {text}"}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    body = {"messages": messages, **body}
    return {"custom_id": f"r{number:07d}", "method": "POST", "url": "/v1/chat/completions", "body": body}


def alike(count: int, *, size_bytes: int = 520) -> Iterable[Line]:
    """Make lines of about this size."""
    text = "lorem ipsum " * ((size_bytes - 150) // 12)
    return (line(number, text) for number in range(count))


def sharing(
    groups: int, each: int, *, prefix_bytes: int, shuffle: Callable[[list[int]], None], seed: int = 0
) -> Iterable[Line]:
    """Make lines of which `each` begin like one another, shuffled; another seed makes other beginnings."""
    prefixes = ["".join(random.Random(seed + group).choices("abcdefgh ", k=prefix_bytes)) for group in range(groups)]
    numbers = list(range(groups * each))
    shuffle(numbers)
    return (line(number, "what follows?", system=prefixes[number % groups]) for number in numbers)
