"""A reply as the spool keeps it, and back: what a dead worker had received can be judged like any other."""

from typing import Any

from batchrun.core.outcome import Reply, Timing


def describe(reply: Reply, path: str) -> dict[str, Any]:
    """Return what the spool writes beside the body."""
    timing = reply.timing
    return {
        "path": path,
        "status": reply.status,
        "headers": {name: value for name, value in reply.headers.items() if name != "set-cookie"},
        "timing": [timing.sent_at, timing.first_byte_at, timing.ended_at, timing.duration_s],
    }


def restore(about: dict[str, Any], body: bytes) -> tuple[Reply, str]:
    """Return the reply and its path from what the spool held."""
    timing = Timing(*about["timing"])
    return Reply(int(about["status"]), about["headers"], body, timing), str(about["path"])
