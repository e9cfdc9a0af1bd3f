"""`rankcurve import`: post the lines of a CSV file to a leaderboard.

The board must exist, because its specification says how the values of the file are merged and ranked.

Batches are sent several at the same time, and counted in the order of the file. The position on disk never passes a
line whose outcome is unknown. The next run sends the lines after the position again, under the same post ids. If the
service already has a post, it answers `duplicate`.
"""

import asyncio
import contextlib
import itertools
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rankcurve import ApiError, AsyncClient, RankcurveError, Retries, UnexpectedAnswerError
from rankcurve.answers import Board, PostResult
from rankcurve.errors import Problem
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from service.commands.imports.import_files import (
    RESUME_FORMAT,
    Imported,
    ImportNote,
    RejectsFile,
    ResumeFile,
    ResumeState,
    Tally,
    advice_after_rejections,
    partial_path,
    reasons_path,
    refuse_shared_files,
)
from service.commands.imports.import_lines import (
    Batch,
    Field,
    FilePosition,
    Plan,
    Post,
    Rejection,
    UnusableFileError,
    file_digest,
    import_identity,
    read_batches,
    read_headings,
)
from service.commands.target import DEFAULT_URL, BoardArgument, KeyOption, UrlOption, call_service, fail

CONCURRENCY_MAX = 64
BATCH_POSTS_MAX = 10_000
SHOWN_REJECTIONS_MAX = 20
TOO_FINE = "more digits after the point"  # part of the service's message about a value with too many digits
SendPosts = Callable[[Sequence[Post]], Coroutine[Any, Any, list[PostResult]]]  # returns one result for each post

FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE.csv", exists=True, dir_okay=False, show_default=False, help="CSV in UTF-8, headings first."
    ),
]
OwnerOption = Annotated[str, typer.Option(help="Heading of the column that holds the owner.", show_default=False)]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        "-c",
        metavar="COLUMN=HEADING",
        help="The column of the leaderboard and the heading of the file that feeds it; repeatable. xp=score posts the "
        "values under `score` as `xp`; xp alone means xp=xp. Default: every column that the file has a heading for.",
    ),
]
DelimiterOption = Annotated[str, typer.Option(help="Character that separates cells; `tab` for a tabulator.")]
BatchOption = Annotated[int, typer.Option(min=1, max=BATCH_POSTS_MAX, help="Lines in each request.")]
ConcurrencyOption = Annotated[
    int, typer.Option(min=1, max=CONCURRENCY_MAX, help="Requests at the same time; one if the order of lines matters.")
]
RetriesOption = Annotated[
    int, typer.Option(min=0, max=1000, help="Further attempts for each request while the service is busy or away.")
]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait", help="Wait for a service that is not up yet, as often as --retries says. Otherwise the import ends."
    ),
]
RejectedMaxOption = Annotated[
    int,
    typer.Option(
        min=0,
        help="Stop once more lines than this were rejected, because the mapping may be wrong. Earlier runs of the same "
        "import count, too. Applied lines stay applied; to continue, run again with a larger number.",
    ),
]
RejectsOption = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        help="Write the rejected lines here unchanged, after the headings. Correct them and import this file. "
        "FILE.reasons says why each was rejected.",
    ),
]
RoundOption = Annotated[
    bool,
    typer.Option(
        "--round",
        help="Round values with more digits than their column's scale, like 48.682000000000002 from a binary number, "
        "and say how many were rounded. Without this option such a line is rejected.",
    ),
]
LabelOption = Annotated[
    str,
    typer.Option(
        help="Part of the post ids. With a new label the same content counts once more. Use it on purpose, or if two "
        "files are equal by chance."
    ),
]
ResumeOption = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        help="File that notes an unfinished import. Default: beside FILE.csv. In the same folder, "
        "FILE.csv.BOARD.imported notes imports into columns of merge `sum`. The same file with another mapping would "
        "add its values again, so the command warns, and asks at a terminal.",
    ),
]
RestartOption = Annotated[bool, typer.Option("--restart", help="Start from the first line, whatever was noted.")]
QueuedOption = Annotated[
    bool,
    typer.Option(
        "--queued",
        help="Queue the lines: the service applies them soon after its answer, which is faster. Lines that are "
        "rejected when they are applied are listed only in the service's journal.",
    ),
]


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
    patient = Retries(attempts_max=retries + 1, before_first_answer=wait)
    try:
        call_service(url, key, lambda client: run_import(client, job), patient)
    except UnusableFileError as cause:
        fail(str(cause))
    except OSError as cause:
        fail(f"{cause.filename or file}: {cause.strerror}")


def parse_delimiter(text: str) -> str:
    """Return one character that can separate cells. Raises typer.BadParameter."""
    delimiter = "\t" if text in ("tab", "\\t") else text
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise typer.BadParameter("--delimiter is one character, or `tab`")
    return delimiter


async def run_import(client: AsyncClient, job: Job) -> None:
    """Run the whole import. Exit with code 1 if lines were rejected."""
    board = await client.board(job.board)
    headings, heading = read_headings(job.path, job.delimiter)
    fields = map_fields(board, job, headings)
    digest = file_digest(job.path)
    identity = import_identity(digest, job.owner_heading, fields, job.label)
    plan = Plan(job.owner_heading, fields, job.delimiter, identity)
    # Without --round, an earlier run may have rejected lines with too many digits. A run with --round accepts them, so
    # it starts at the first line again. Post ids stay the same, so no line counts twice.
    start = ResumeState(RESUME_FORMAT, f"{identity}{job.rounds * '+round'}", job.board, client.transport.url)
    resume = ResumeFile(job.resume_path, start)
    imported = Imported(digest, client.transport.url, job.board, job.label, identity, summed_columns(board, fields))
    note = ImportNote(job.resume_path.with_name(f"{job.path.name}.{job.board}.imported"), imported)
    refuse_shared_files(files_by_purpose(job, note))
    if board.entries != 0:
        warn_of_sums(note, job)
    if not job.restart:
        resume.load_state()
    tally, line = resume.state.tally, resume.state.line
    done_before = tally.total()
    if tally.rejected > job.rejected_max:
        fail(f"at line {line:,}: {advice_after_many_rejections(tally, job)}")
    if resume.state is not start:
        typer.echo(f"continuing after line {line:,} ({done_before:,} lines done before)", err=True)
    began_s = time.monotonic()
    with (
        RejectsFile(job.rejects, job.path, heading, resume.state.rejects) if job.rejects else contextlib.nullcontext()
    ) as rejects:
        try:
            await send_lines(
                client, job, plan, resume, note, rejects, 1 if order_matters(board, fields) else job.concurrency
            )
        except RankcurveError as error:
            if may_succeed_later(error):
                typer.echo("stopped; run the same command again to continue where it ended", err=True)
            raise
    resume.delete_file()
    rounded = f"; values rounded: {tally.rounded:,}" if job.rounds else ""
    typer.echo(summary_text(tally, lines=tally.total() - done_before, seconds=time.monotonic() - began_s) + rounded)
    if tally.rejected:
        typer.echo(advice_after_rejections(job.path, job.rejects), err=True)
        raise typer.Exit(1)


async def send_lines(
    client: AsyncClient,
    job: Job,
    plan: Plan,
    resume: ResumeFile,
    note: ImportNote,
    rejects: RejectsFile | None,
    concurrency: int,
) -> None:
    """Send the lines after the position of `resume`. After each batch, report its rejected lines and save the position.

    End the command if too many lines are rejected.
    """
    state, tally = resume.state, resume.state.tally
    screen = Console(stderr=True, highlight=False)
    shown = itertools.count(1)
    send = partial(client.post, job.board, queued=job.queued, split=True)
    batches = read_batches(job.path, plan, FilePosition(state.offset, state.line), batch_posts_max=job.batch)
    sending = contextlib.aclosing(send_batches(send, batches, concurrency=concurrency))
    with make_progress_bar(screen) as bar:
        size_bytes = job.path.stat().st_size
        task = bar.add_task(f"import {job.board}", total=size_bytes, completed=state.offset, lines=state.line)
        async with sending as sent:
            async for batch, results in sent:
                for rejection in count_results(batch, results, tally):
                    if rejects:
                        rejects.write_rejection(rejection)
                    show_rejection(screen, rejection, next(shown))
                if tally.applied or tally.accepted or tally.duplicate:
                    note.record_import()
                # The file of rejects holds the rejected lines before the saved position moves past these lines.
                state.rejects = rejects.current_position() if rejects else None
                state.offset, state.line = batch.end.offset, batch.end.line
                if resume.writable and not resume.save_state():
                    screen.print(
                        f"note: cannot write {resume.path}: a second run would start at the first line", markup=False
                    )
                bar.update(task, completed=state.offset, lines=state.line)
                if tally.rejected > job.rejected_max:
                    fail(f"stopped: {advice_after_many_rejections(tally, job)}")


async def send_batches(
    send: SendPosts, batches: Iterator[Batch], *, concurrency: int
) -> AsyncGenerator[tuple[Batch, list[PostResult]], None]:
    """Send every batch, at most `concurrency` at a time, and yield each with its results, in order.

    Use it with `contextlib.aclosing`, which cancels the requests under way if the caller stops early.

    Raises:
        RankcurveError: the service failed, and trying again did not help.
        UnusableFileError: `batches` could not read the file.
    """
    flying: deque[tuple[Batch, asyncio.Task[list[PostResult]]]] = deque()
    try:
        for batch in batches:
            flying.append((batch, asyncio.create_task(send(batch.posts))))
            if len(flying) == concurrency:
                yield flying[0][0], await flying[0][1]
                flying.popleft()
        while flying:
            yield flying[0][0], await flying[0][1]
            flying.popleft()
    finally:
        for _, task in flying:
            task.cancel()
        await asyncio.gather(*(task for _, task in flying), return_exceptions=True)


def count_results(batch: Batch, results: list[PostResult], tally: Tally) -> list[Rejection]:
    """Count the lines of a batch, and return the rejected ones in the order of the file."""
    rejected = list(batch.rejected)
    for line, span, result in zip(batch.lines, batch.spans, results, strict=True):
        if result.status == "rejected":
            rejected.append(Rejection(line, (result.error or Problem(code="rejected")).text(), span))
        else:
            tally.count_line(result.status)
    tally.rejected += len(rejected)
    tally.rounded += batch.rounded
    return sorted(rejected, key=lambda each: each.line)


def show_rejection(screen: Console, rejection: Rejection, number: int) -> None:
    """Print a rejected line, if it is one of the first of this run; `number` counts them."""
    if number <= SHOWN_REJECTIONS_MAX:
        hint = " (--round rounds it)" if TOO_FINE in rejection.reason else ""
        screen.print(f"line {rejection.line}: {rejection.reason}{hint}", markup=False, soft_wrap=True)
    elif number == SHOWN_REJECTIONS_MAX + 1:
        screen.print("more lines were rejected; --rejects FILE lists them all", markup=False)


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
        # The event loop's handler would only cancel this task, which cannot stop while it waits for the answer.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            typer.confirm("Import it once more?", abort=True, err=True)
        finally:
            signal.signal(signal.SIGINT, handler)


def is_interactive() -> bool:
    return sys.stdin.isatty()


def may_succeed_later(error: RankcurveError) -> bool:
    """Return whether the same command may succeed later."""
    own_fault = isinstance(error, ApiError) and error.status < 500 and error.status not in (408, 429)
    return not own_fault and not isinstance(error, UnexpectedAnswerError)


def advice_after_many_rejections(tally: Tally, job: Job) -> str:
    return (
        f"{tally.rejected:,} lines rejected (--rejected-max {job.rejected_max}); is the mapping right? "
        f"With another mapping the import starts from the first line, with a larger --rejected-max it continues"
    )


def files_by_purpose(job: Job, note: ImportNote) -> dict[str, Path]:
    files = {"the file to import": job.path, "the note for resuming": job.resume_path}
    files["the note for resuming while it is written"] = partial_path(job.resume_path)
    files |= {
        "the note of the import": note.path,
        "the note of the import while it is written": partial_path(note.path),
    }
    if job.rejects:
        files |= {"the file for rejected lines": job.rejects, "the file for their reasons": reasons_path(job.rejects)}
    return files


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
