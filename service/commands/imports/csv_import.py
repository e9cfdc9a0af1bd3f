"""Imports a CSV file: each line becomes one post, whose id is made of the content of the file and the line.

The next run of a stopped import sends the lines after the saved position again, under the same post ids. If the service
already has a post, it answers `duplicate`.
"""

import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Board

from service.commands.imports.import_files import (
    RESUME_FORMAT,
    Imported,
    ImportNote,
    ResumeState,
    advice_after_rejections,
    partial_path,
    reasons_path,
    refuse_shared_files,
)
from service.commands.imports.import_lines import (
    Batch,
    Field,
    Plan,
    SourcePosition,
    UnusableSourceError,
    file_digest,
    import_identity,
    read_batches,
    read_headings,
)
from service.commands.imports.sending import Job, Source, send_source


@dataclass(frozen=True, slots=True)
class CsvFile:
    path: Path
    owner_heading: str
    delimiter: str
    label: str

    def resume_path(self, board: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{board}.resume")

    async def import_into(self, client: AsyncClient, job: Job) -> None:
        """Run the whole import. Exit with code 1 if lines were rejected."""
        board = await client.board(job.board)
        headings, heading = read_headings(self.path, self.delimiter)
        fields = map_fields(board, job, self, headings)
        digest = file_digest(self.path)
        identity = import_identity(digest, self.owner_heading, fields, self.label)
        plan = Plan(self.owner_heading, fields, self.delimiter, identity)
        # Without --round, an earlier run may have rejected lines with too many digits. A run with --round accepts them,
        # so it starts at the first line again. Post ids stay the same, so no line counts twice.
        start = ResumeState(RESUME_FORMAT, f"{identity}{job.rounds * '+round'}", job.board, client.transport.url)
        sums = summed_columns(board, fields)
        imported = Imported(digest, client.transport.url, job.board, self.label, identity, sums)
        note = ImportNote(job.resume_path.with_name(f"{self.path.name}.{job.board}.imported"), imported)
        refuse_shared_files(files_by_purpose(job, self.path, note))
        if board.entries != 0:
            warn_of_sums(note, job.board, self)

        async def read_file(position: SourcePosition) -> AsyncIterator[Batch]:
            for batch in read_batches(self.path, plan, position, batch_posts_max=job.batch):
                yield batch

        source = Source(
            line="line",
            heading=heading,
            name_line=lambda rejection: f"line {rejection.line}",
            advice="is the mapping right? With another mapping the import starts from the first line.",
            size=self.path.stat().st_size,
            measure=lambda position: position.offset,
            read_batches=read_file,
        )
        concurrency = 1 if order_matters(board, fields) else job.concurrency
        tally = await send_source(client, job, source, start, concurrency=concurrency, on_batch=note.record_import)
        if tally.rejected:
            typer.echo(advice_after_rejections(self.path, job.rejects), err=True)
            raise typer.Exit(1)


def summed_columns(board: Board, fields: tuple[Field, ...]) -> tuple[str, ...]:
    """Return COLUMN=HEADING for each mapped column of merge `sum`."""
    sums = {each.name for each in board.columns if each.merge == "sum"}
    return tuple(f"{each.column}={each.heading}" for each in fields if each.column in sums)


def warn_of_sums(note: ImportNote, board: str, file: CsvFile) -> None:
    """Warn if this import would add values that an earlier import already added.

    On a terminal, ask whether to go on. End the command if the answer is no.
    """
    fed = note.columns_fed_before()
    if not fed:
        return
    typer.echo(
        f"warning: {file.path.name} was imported into {board} before, with {', '.join(fed)}; with another mapping "
        "its lines are new posts, so their values are added to these columns again (use --label if that is intended)",
        err=True,
    )
    if is_interactive():
        # The event loop's handler would only cancel this task, which cannot stop while it waits for the answer.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            typer.confirm("Import it once more?", abort=True, err=True)
        finally:
            signal.signal(signal.SIGINT, handler)


def is_interactive() -> bool:
    return sys.stdin.isatty()


def files_by_purpose(job: Job, path: Path, note: ImportNote) -> dict[str, Path]:
    files = {"the file to import": path, "the note for resuming": job.resume_path}
    files["the note for resuming while it is written"] = partial_path(job.resume_path)
    files |= {
        "the note of the import": note.path,
        "the note of the import while it is written": partial_path(note.path),
    }
    if job.rejects:
        files |= {"the file for rejected lines": job.rejects, "the file for their reasons": reasons_path(job.rejects)}
    return files


def map_fields(board: Board, job: Job, file: CsvFile, headings: list[str]) -> tuple[Field, ...]:
    """Return the columns to feed, with their headings. Raises UnusableSourceError if they disagree."""
    columns = {each.name: each for each in board.columns}
    shared = [name for name in columns if name in headings and name != file.owner_heading]
    pairs = [(name, heading or name) for name, _, heading in (text.partition("=") for text in job.columns or shared)]
    if not pairs:
        known = ", ".join(columns)
        raise UnusableSourceError(
            f"no heading is a column of {job.board} ({known}): map them with --column COLUMN=HEADING"
        )
    for name, _ in pairs:
        if name not in columns:
            raise UnusableSourceError(f"{job.board} has no column {name!r}; it has {', '.join(columns)}")
        if [each for each, _ in pairs].count(name) > 1:
            raise UnusableSourceError(f"column {name} is mapped twice")
    for heading in (file.owner_heading, *(heading for _, heading in pairs)):
        if headings.count(heading) != 1:
            what = "no" if heading not in headings else "more than one"
            raise UnusableSourceError(f"{file.path} has {what} heading {heading!r}; it has {', '.join(headings)}")
    scales = {name: column.scale for name, column in columns.items() if job.rounds and column.type != "text"}
    texts = {name for name, column in columns.items() if column.type == "text"}
    return tuple(Field(name, heading, text=name in texts, scale=scales.get(name)) for name, heading in pairs)


def order_matters(board: Board, fields: tuple[Field, ...]) -> bool:
    """Return whether the outcome depends on which of two batches arrives first."""
    mapped = {each.column for each in fields}
    return board.ties == "earliest" or any(each.merge == "last" for each in board.columns if each.name in mapped)
