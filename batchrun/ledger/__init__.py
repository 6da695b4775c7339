"""The ledger: every job, item and attempt, and the only statements that may move them. The queue of record."""
