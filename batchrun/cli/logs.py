"""`-v`: one structured line on stderr for each attempt that was no plain answer. Ids and counts, never a prompt."""

import sys
from typing import Any

from batchrun.cli.context import Context


def make_log(context: Context) -> Any:
    """Return a function `log(event, **fields)`; it does nothing unless the person asked for more."""
    if not context.verbose:
        return lambda event, **fields: None
    import structlog

    render = structlog.processors.JSONRenderer() if context.json else structlog.dev.ConsoleRenderer(colors=False)
    logger = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[structlog.processors.TimeStamper(fmt="iso", utc=True), render],
    )
    return logger.msg
