"""What reports, comparisons and diagnoses are about: a result file, or a job of the ledger."""

from typing import Any

import click

from batchrun.cli.context import JOB, JobName


class SubjectName(JobName):
    """A result file's path, a job's name, or the path of its spec; a shell completes jobs and files."""

    name = "result|job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take it as it is: what it is, is seen when it is read."""
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[click.shell_completion.CompletionItem]":
        from click.shell_completion import CompletionItem

        return [*JOB.shell_complete(ctx, param, incomplete), CompletionItem(incomplete, type="file")]


SUBJECT = SubjectName()
