"""How far the proofs go: a share of them in every test run, the whole by `make proof`. Where chance begins, too."""

import os
import time

IS_WHOLE = os.environ.get("PROOF_WHOLE", "") == "1"


def first_seed() -> int:
    """Return the seed that PROOF_SEED names, else another one each day."""
    named = os.environ.get("PROOF_SEED")
    return int(named) if named else int(time.time()) // 86_400 * 1_000_000
