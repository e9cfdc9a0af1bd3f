"""`rankcurve import`: post the lines of a CSV file to a leaderboard.

The board must exist, because its specification says how the values of the file are merged and ranked.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from service.client.client import ClientError, NotTheContractError, Patience, RefusedError, ServiceClient
from service.client.client_answers import Board
from service.commands.imports.import_lines import (
    Field,
    FilePosition,
    Plan,
    Rejection,
    Span,
    UnusableFileError,
    file_digest,
    import_identity,
    read_batches,
    read_headings,
)
from service.commands.imports.import_notes import Imported, ImportNote
from service.commands.imports.import_options import (
    BatchOption,
    ConcurrencyOption,
    DelimiterOption,
    FileArgument,
    LabelOption,
    MapOption,
    OwnerOption,
    QueuedOption,
    RejectedMaxOption,
    RejectsOption,
    RestartOption,
    ResumeOption,
    RetriesOption,
    RoundOption,
    WaitOption,
)
from service.commands.imports.import_rejects import (
    RejectsFile,
    RejectsPosition,
    advice_after_rejections,
    reasons_path,
    refuse_shared_files,
)
from service.commands.imports.import_run import Reports, ResumeFile, Source, Tally, TooManyRejectedError, send_batches
from service.commands.target import DEFAULT_URL, BoardArgument, KeyOption, Target, UrlOption, call_service, fail

SHOWN_REJECTIONS_MAX = 20
TOO_FINE = "more digits after the point"  # part of the service's message about a value with too many digits


@dataclass(frozen=True, slots=True)
class Job:
    board: str
    path: Path
    owner_heading: str
    columns: tuple[str, ...]
    delimiter: str
    label: str
    batch: int
    concurrency: int
    rejected_max: int
    rejects: Path | None
    resume_path: Path
    restart: bool
    queued: bool
    rounds: bool


def import_csv(
    board: BoardArgument,
    file: FileArgument,
    owner_column: OwnerOption,
    column: MapOption = None,
    delimiter: DelimiterOption = ",",
    batch: BatchOption = 1000,
    concurrency: ConcurrencyOption = 4,
    retries: RetriesOption = 20,
    wait: WaitOption = False,
    rejected_max: RejectedMaxOption = 1000,
    rejects: RejectsOption = None,
    label: LabelOption = "",
    resume_file: ResumeOption = None,
    restart: RestartOption = False,
    queued: QueuedOption = False,
    rounds: RoundOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Post every line of a CSV file to a leaderboard.

    Each line is one post. Its id is made of the content of the file and the line. To continue an import that was
    stopped, run the same command again: the import continues where it was stopped, and no line counts twice. An edited
    file is another file, so all its lines count again.

    Rejected lines are listed with their numbers, and the exit code is then 1. All other lines stay applied. To add the
    rejected lines, correct the file that --rejects wrote and import that file.

    Batches are sent one at a time if their order matters: if a mapped column merges by `last`, or the board breaks ties
    by `earliest`.

    The leaderboard must exist. Example:

        rankcurve board create season --column xp:sum:high
        rankcurve import season players.csv --owner-column id --column xp=score
    """
    job = Job(
        board=board,
        path=file,
        owner_heading=owner_column,
        columns=tuple(column or ()),
        delimiter=parse_delimiter(delimiter),
        label=label,
        batch=batch,
        concurrency=concurrency,
        rejected_max=rejected_max,
        rejects=rejects,
        resume_path=resume_file or file.with_name(f"{file.name}.{board}.resume"),
        restart=restart,
        queued=queued,
        rounds=rounds,
    )
    start_import(Target(url, key), job, Patience(attempts_max=retries + 1, reconnects=True, awaits=wait))


def start_import(target: Target, job: Job, patience: Patience) -> None:
    async def action(client: ServiceClient) -> None:
        try:
            await run_import(client, job)
        except UnusableFileError as cause:
            fail(str(cause))

    call_service(target, action, patience)


def parse_delimiter(text: str) -> str:
    """Return one character that can separate cells. Raises typer.BadParameter."""
    delimiter = "\t" if text in ("tab", "\\t") else text
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise typer.BadParameter("--delimiter is one character, or `tab`")
    return delimiter


async def run_import(client: ServiceClient, job: Job) -> None:
    """Run the whole import. Exit with code 1 if lines were rejected."""
    board = await client.get_board(job.board)
    headings, heading = read_headings(job.path, job.delimiter)
    fields = map_fields(board, job, headings)
    digest = file_digest(job.path)
    identity = import_identity(digest, job.owner_heading, fields, job.label)
    plan = Plan(job.owner_heading, fields, job.delimiter, identity)
    # Without --round, an earlier run may have rejected lines with too many digits. A run with --round accepts them, so
    # it starts at the first line again. Post ids stay the same, so no line counts twice.
    resume = ResumeFile(job.resume_path, Source(f"{identity}{job.rounds * '+round'}", job.board, client.url))
    imported = Imported(digest, client.url, job.board, job.label, identity, summed_columns(board, fields))
    note = ImportNote(job.resume_path.with_name(f"{job.path.name}.{job.board}.imported"), imported)
    refuse_shared_files(files_by_purpose(job, resume, note))
    if board.entries != 0:
        warn_of_sums(note, job)
    state = None if job.restart else resume.load_state()
    start, tally = (FilePosition(state.offset, state.line), state.tally) if state else (FilePosition(), Tally())
    done_before = tally.total()
    if tally.rejected > job.rejected_max:
        fail(f"at line {start.line:,}: {advice_after_many_rejections(tally, job)}")
    if state:
        typer.echo(f"continuing after line {start.line:,} ({done_before:,} lines done before)", err=True)
    concurrency = 1 if order_matters(board, fields) else job.concurrency
    began_s = time.monotonic()
    with (
        open_rejects_file(job, heading, state.rejects if state else None) as rejects,
        report_progress(job, resume, note, start, rejects) as reports,
    ):
        try:
            batches = read_batches(job.path, plan, start, batch_posts_max=job.batch)
            await send_batches(
                client.queue_posts if job.queued else client.apply_posts,
                job.board,
                batches,
                tally=tally,
                reports=reports,
                concurrency=concurrency,
                rejected_max=job.rejected_max,
            )
        except TooManyRejectedError:
            fail(f"stopped: {advice_after_many_rejections(tally, job)}")
        except ClientError as error:
            if may_succeed_later(error):
                typer.echo("stopped; run the same command again to continue where it ended", err=True)
            raise
    resume.delete_file()
    rounded = f"; values rounded: {tally.rounded:,}" if job.rounds else ""
    typer.echo(summary_text(tally, lines=tally.total() - done_before, seconds=time.monotonic() - began_s) + rounded)
    if tally.rejected:
        typer.echo(advice_after_rejections(job.path, job.rejects), err=True)
        raise typer.Exit(1)


def summed_columns(board: Board, fields: tuple[Field, ...]) -> tuple[str, ...]:
    """Return COLUMN=HEADING for each mapped column of merge `sum`."""
    sums = {each.name for each in board.columns if each.merge == "sum"}
    return tuple(f"{each.column}={each.heading}" for each in fields if each.column in sums)


def warn_of_sums(note: ImportNote, job: Job) -> None:
    """Warn if this import would add values that an earlier import already added.

    On a terminal, ask whether to go on. End the command if the answer is no.
    """
    fed = note.columns_fed_before()
    if not fed:
        return
    typer.echo(
        f"warning: {job.path.name} was imported into {job.board} before, with {', '.join(fed)}; with another mapping "
        "its lines are new posts, so their values are added to these columns again (use --label if that is intended)",
        err=True,
    )
    if is_interactive():
        typer.confirm("Import it once more?", abort=True, err=True)


def is_interactive() -> bool:
    return sys.stdin.isatty()


def may_succeed_later(error: ClientError) -> bool:
    """Return whether the same command may succeed later."""
    own_fault = isinstance(error, RefusedError) and error.status < 500 and error.status not in (408, 429)
    return not own_fault and not isinstance(error, NotTheContractError)


def advice_after_many_rejections(tally: Tally, job: Job) -> str:
    return (
        f"{tally.rejected:,} lines rejected (--rejected-max {job.rejected_max}); is the mapping right? "
        f"With another mapping the import starts from the first line, with a larger --rejected-max it continues"
    )


def files_by_purpose(job: Job, resume: ResumeFile, note: ImportNote) -> dict[str, Path]:
    files = {"the file to import": job.path, "the note for resuming": resume.path}
    files["the note for resuming while it is written"] = resume.partial_path
    files |= {"the note of the import": note.path, "the note of the import while it is written": note.partial_path}
    if job.rejects:
        files |= {"the file for rejected lines": job.rejects, "the file for their reasons": reasons_path(job.rejects)}
    return files


def open_rejects_file(
    job: Job, heading: Span, position: RejectsPosition | None
) -> contextlib.AbstractContextManager[RejectsFile | None]:
    return RejectsFile(job.rejects, job.path, heading, position) if job.rejects else contextlib.nullcontext()


def map_fields(board: Board, job: Job, headings: list[str]) -> tuple[Field, ...]:
    """Return the columns to feed, with their headings. Raises UnusableFileError if file, board and mapping disagree."""
    columns = {each.name: each for each in board.columns}
    shared = [name for name in columns if name in headings and name != job.owner_heading]
    pairs = [(name, heading or name) for name, _, heading in (text.partition("=") for text in job.columns or shared)]
    if not pairs:
        known = ", ".join(columns)
        raise UnusableFileError(
            f"no heading is a column of {job.board} ({known}): map them with --column COLUMN=HEADING"
        )
    for name, _ in pairs:
        if name not in columns:
            raise UnusableFileError(f"{job.board} has no column {name!r}; it has {', '.join(columns)}")
        if [each for each, _ in pairs].count(name) > 1:
            raise UnusableFileError(f"column {name} is mapped twice")
    for heading in (job.owner_heading, *(heading for _, heading in pairs)):
        if headings.count(heading) != 1:
            what = "no" if heading not in headings else "more than one"
            raise UnusableFileError(f"{job.path} has {what} heading {heading!r}; it has {', '.join(headings)}")
    scales = {name: column.scale for name, column in columns.items() if job.rounds and column.type != "text"}
    texts = {name for name, column in columns.items() if column.type == "text"}
    return tuple(Field(name, heading, text=name in texts, scale=scales.get(name)) for name, heading in pairs)


def order_matters(board: Board, fields: tuple[Field, ...]) -> bool:
    """Return whether the outcome depends on which of two batches arrives first."""
    mapped = {each.column for each in fields}
    return board.ties == "earliest" or any(each.merge == "last" for each in board.columns if each.name in mapped)


@contextlib.contextmanager
def report_progress(
    job: Job, resume: ResumeFile, note: ImportNote, start: FilePosition, rejects: RejectsFile | None
) -> Iterator[Reports]:
    """Provide `Reports` that show progress on a terminal, write rejected lines and save the position."""
    screen = Console(stderr=True, highlight=False)
    shown = 0
    with make_progress_bar(screen) as bar:
        size = job.path.stat().st_size
        task = bar.add_task(f"import {job.board}", total=size, completed=start.offset, lines=start.line)

        def show_rejection(rejection: Rejection) -> None:
            nonlocal shown
            shown += 1
            if rejects:
                rejects.write_rejection(rejection)
            if shown <= SHOWN_REJECTIONS_MAX:
                hint = " (--round rounds it)" if TOO_FINE in rejection.reason else ""
                screen.print(f"line {rejection.line}: {rejection.reason}{hint}", markup=False, soft_wrap=True)
            elif shown == SHOWN_REJECTIONS_MAX + 1:
                screen.print("more lines were rejected; --rejects FILE lists them all", markup=False)

        def save_progress(position: FilePosition, tally: Tally) -> None:
            if tally.applied or tally.accepted or tally.duplicate:
                note.record_import()
            could_write = resume.writable
            # Write the rejected lines to their file before the position moves past them.
            resume.save_state(position, tally, rejects.current_position() if rejects else None)
            if could_write and not resume.writable:
                screen.print(
                    f"note: cannot write {resume.path}: a second run would start at the first line", markup=False
                )
            bar.update(task, completed=position.offset, lines=position.line)

        yield Reports(show_rejection, save_progress)


def make_progress_bar(screen: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[lines]:,} lines"),
        TimeRemainingColumn(),
        console=screen,
        disable=not screen.is_terminal,
    )


def summary_text(tally: Tally, *, lines: int, seconds: float) -> str:
    """Return one line with the counts of all outcomes so far, and the speed of this run."""
    stood = f"{tally.applied:,} applied, {tally.unchanged:,} unchanged, {tally.duplicate:,} duplicate"
    if tally.accepted:
        stood = f"{tally.accepted:,} accepted, {stood}"
    pace = f"{lines:,} in {seconds:.1f} s, {lines / max(seconds, 0.001):,.0f}/s"
    return f"{tally.total():,} lines: {stood}, {tally.rejected:,} rejected ({pace})"
