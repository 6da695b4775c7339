"""Jobs to measure with."""

import json
from pathlib import Path


def write_job(folder: Path, *, count: int, concurrency: int, pad: int = 400, name: str = "bench") -> None:
    """Write a job of `count` lines of about `pad` bytes."""
    for place in ("jobs", "inputs", "outputs"):
        (folder / place).mkdir(exist_ok=True)
    text = "lorem ipsum " * (pad // 12)
    with (folder / "inputs" / "in.jsonl").open("w") as lines:
        for number in range(count):
            body = {"messages": [{"role": "user", "content": f"[[r{number:07d}]] {text}"}]}
            line = {"custom_id": f"r{number:07d}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            lines.write(json.dumps(line) + "\n")
    spec = {
        "task_id": name,
        "model": "mock",
        "input_file": "inputs/in.jsonl",
        "output_file": "outputs/out.jsonl",
        "max_tokens": 32,
        "concurrency": concurrency,
        "retry_times": 3,
    }
    (folder / "jobs" / "job.json").write_text(json.dumps(spec))
