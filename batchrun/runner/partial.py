"""`<output>.partial`: completed answers as they come, for those who look while a job runs. Never the truth."""

from contextlib import suppress
from pathlib import Path

from batchrun.core.states import ItemState
from batchrun.errors import LedgerFault
from batchrun.files.derived import PartialFile
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.results import results_of, stream_results
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
        with suppress(LedgerFault):
            rows = stream_results(self._ledger, self._job_id, states=(ItemState.COMPLETED,))
            self._file.rebuild(answer_lines(self._ledger, rows))

    def add(self, item_ids: list[int]) -> None:
        """Append newly completed items."""
        for start in range(0, len(item_ids), AT_ONCE):
            chunk = item_ids[start : start + AT_ONCE]
            with suppress(LedgerFault):
                with self._ledger.read() as connection:
                    rows = results_of(connection, self._job_id, chunk)
                self._file.append(list(answer_lines(self._ledger, rows)))

    def remove(self) -> None:
        """Delete the file: the whole output is there now."""
        self._file.remove()


class Unwritten:
    """The partial output of a job of which this process writes none: another one does, or nobody would read it."""

    def add(self, item_ids: list[int]) -> None:
        """Do nothing."""
