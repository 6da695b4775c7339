"""`<output>.partial`: completed answers as they come, for those who look while a job runs. Never the truth, never a stop."""

from contextlib import suppress
from pathlib import Path

from batchrun.errors import LedgerFault
from batchrun.files.derived import PartialFile
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import results, stream_results
from batchrun.runner.export import answer_lines

AT_ONCE = 500


class PartialOutput:
    """The partial file of one job. Nothing that happens to it hurts the run."""

    def __init__(self, ledger: Ledger, job_id: int, output: Path) -> None:
        self._ledger = ledger
        self._job_id = job_id
        self._file = PartialFile(output)

    def rebuild(self) -> None:
        """Start the file anew from the ledger: after a crash its tail may be torn or missing."""
        with suppress(LedgerFault), self._ledger.read() as connection:
            self._file.rebuild(answer_lines(self._ledger, stream_results(connection, self._job_id)))

    def add(self, item_ids: list[int]) -> None:
        """Append newly completed items."""
        for start in range(0, len(item_ids), AT_ONCE):
            chunk = item_ids[start : start + AT_ONCE]
            with suppress(LedgerFault), self._ledger.read() as connection:
                rows = results(connection, self._job_id, item_ids=chunk, limit=len(chunk))
                self._file.append(list(answer_lines(self._ledger, rows)))

    def remove(self) -> None:
        """Delete the file: the whole output is there now."""
        self._file.remove()
