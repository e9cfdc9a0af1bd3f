"""Sends the batches of an import, counts what became of their lines, and keeps the position from which it continues.

Batches are sent several at the same time, and counted in the order of the source. The saved position never passes a
line whose outcome is unknown. The next run sends the lines after the position again.
"""

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rankcurve import ApiError, AsyncClient, RankcurveError, UnexpectedAnswerError
from rankcurve.answers import PostResult
from rankcurve.errors import Problem
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from service.commands.imports.import_files import RejectsFile, ResumeFile, ResumeState, Tally
from service.commands.imports.import_lines import Batch, Post, Rejection, SourcePosition
from service.commands.target import fail

SHOWN_REJECTIONS_MAX = 20
TOO_FINE = "more digits after the point"  # part of the service's message about a value with too many digits
SendPosts = Callable[[Sequence[Post]], Coroutine[Any, Any, list[PostResult]]]  # returns one result for each post


@dataclass(frozen=True, slots=True)
class Job:
    """What an import was told, whatever its source."""

    board: str
    columns: tuple[str, ...]
    batch: int
    concurrency: int
    rejected_max: int
    rejects: Path | None
    resume_path: Path
    restart: bool
    queued: bool
    rounds: bool


@dataclass(frozen=True, slots=True)
class Source:
    """What an import reads. `size` is the number of units of its progress, of which `measure` says how many are done.

    `line` is the word for one record, and `heading` the first line of a file of rejected records. `name_line` says
    which record was rejected. `advice` says what to do if too many are.
    """

    line: str
    heading: bytes
    name_line: Callable[[Rejection], str]
    advice: str
    size: int
    measure: Callable[[SourcePosition], int]
    read_batches: Callable[[SourcePosition], AsyncIterator[Batch]]


async def send_source(
    client: AsyncClient, job: Job, source: Source, start: ResumeState, *, concurrency: int, on_batch: Callable[[], None]
) -> Tally:
    """Send the lines of a source that no earlier run has sent, print a summary, and return what became of all lines.

    `on_batch` is called after every batch of which the service took a post. If too many lines are rejected, this
    function ends the command. If the service fails, it says how to continue, and raises the RankcurveError.
    """
    resume = ResumeFile(job.resume_path, start)
    if not job.restart:
        resume.load_state()
    tally, line = resume.state.tally, resume.state.line
    done_before = tally.total()
    if tally.rejected > job.rejected_max:
        fail(f"at {source.line} {line:,}: {advice_after_many_rejections(tally, job, source)}")
    if resume.state is not start:
        typer.echo(f"continuing after {source.line} {line:,} ({done_before:,} {source.line}s done before)", err=True)
    began_s = time.monotonic()
    rejects = RejectsFile(job.rejects, source.heading, resume.state.rejects) if job.rejects else None
    with rejects or contextlib.nullcontext():
        try:
            await send_rest(client, job, source, resume, rejects, concurrency, on_batch)
        except RankcurveError as error:
            if may_succeed_later(error):
                typer.echo("stopped; run the same command again to continue where it ended", err=True)
            raise
    resume.delete_file()
    typer.echo(summary_text(tally, source.line, sent=tally.total() - done_before, seconds=time.monotonic() - began_s))
    return tally


async def send_rest(
    client: AsyncClient,
    job: Job,
    source: Source,
    resume: ResumeFile,
    rejects: RejectsFile | None,
    concurrency: int,
    on_batch: Callable[[], None],
) -> None:
    """Send the lines after the position of `resume`. After each batch, report its rejected lines and save the position.

    End the command if too many lines are rejected.
    """
    state, tally = resume.state, resume.state.tally
    screen = Console(stderr=True, highlight=False)
    shown = itertools.count(1)
    send = partial(client.post, job.board, queued=job.queued, split=True, raise_rejected=False)
    position = SourcePosition(state.offset, state.line)
    sending = contextlib.aclosing(send_batches(send, source.read_batches(position), concurrency=concurrency))
    with make_progress_bar(screen, source.line) as bar:
        task = bar.add_task(
            f"import {job.board}", total=source.size, completed=source.measure(position), lines=state.line
        )
        async with sending as sent:
            async for batch, results in sent:
                for rejection in count_results(batch, results, tally):
                    if rejects:
                        rejects.write_rejection(rejection)
                    show_rejection(screen, source, rejection, next(shown))
                if tally.applied or tally.accepted or tally.duplicate:
                    on_batch()
                # The file of rejects holds the rejected lines before the saved position moves past these lines.
                state.rejects = rejects.current_position() if rejects else None
                state.offset, state.line = batch.end.offset, batch.end.line
                if resume.writable and not resume.save_state():
                    screen.print(
                        f"note: cannot write {resume.path}: a second run would start at the beginning", markup=False
                    )
                bar.update(task, completed=source.measure(batch.end), lines=state.line)
                if tally.rejected > job.rejected_max:
                    fail(f"stopped: {advice_after_many_rejections(tally, job, source)}")


async def send_batches(
    send: SendPosts, batches: AsyncIterator[Batch], *, concurrency: int
) -> AsyncGenerator[tuple[Batch, list[PostResult]], None]:
    """Send every batch, at most `concurrency` at a time, and yield each with its results, in order.

    Use it with `contextlib.aclosing`, which cancels the requests under way if the caller stops early.

    Raises:
        RankcurveError: the service failed, and trying again did not help.
        UnusableSourceError: `batches` could not read the source.
    """
    flying: deque[tuple[Batch, asyncio.Task[list[PostResult]]]] = deque()
    try:
        async for batch in batches:
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
    """Count the lines of a batch, and return the rejected ones in the order of the source."""
    rejected = list(batch.rejected)
    for line, record, result in zip(batch.lines, batch.records, results, strict=True):
        if result.status == "rejected":
            rejected.append(Rejection(line, (result.error or Problem(code="rejected")).text(), record))
        else:
            tally.count_line(result.status)
    tally.rejected += len(rejected)
    tally.rounded += batch.rounded
    return sorted(rejected, key=lambda each: each.line)


def show_rejection(screen: Console, source: Source, rejection: Rejection, number: int) -> None:
    """Print a rejected line, if it is one of the first of this run; `number` counts them."""
    if number <= SHOWN_REJECTIONS_MAX:
        hint = " (--round rounds it)" if TOO_FINE in rejection.reason else ""
        screen.print(f"{source.name_line(rejection)}: {rejection.reason}{hint}", markup=False, soft_wrap=True)
    elif number == SHOWN_REJECTIONS_MAX + 1:
        screen.print(f"more {source.line}s were rejected; --rejects FILE lists them all", markup=False)


def may_succeed_later(error: RankcurveError) -> bool:
    """Return whether the same command may succeed later."""
    own_fault = isinstance(error, ApiError) and error.status < 500 and error.status not in (408, 429)
    return not own_fault and not isinstance(error, UnexpectedAnswerError)


def advice_after_many_rejections(tally: Tally, job: Job, source: Source) -> str:
    return (
        f"{tally.rejected:,} {source.line}s rejected (--rejected-max {job.rejected_max}); {source.advice} With a "
        "larger --rejected-max it continues"
    )


def make_progress_bar(screen: Console, line: str) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(f"{{task.fields[lines]:,}} {line}s"),
        TimeRemainingColumn(),
        console=screen,
        disable=not screen.is_terminal,
    )


def summary_text(tally: Tally, line: str, *, sent: int, seconds: float) -> str:
    """Return one line with the counts of all outcomes so far, and the speed of this run."""
    stood = f"{tally.applied:,} applied, {tally.unchanged:,} unchanged, {tally.duplicate:,} duplicate"
    if tally.accepted:
        stood = f"{tally.accepted:,} accepted, {stood}"
    pace = f"{sent:,} in {seconds:.1f} s, {sent / max(seconds, 0.001):,.0f}/s"
    rounded = f"; values rounded: {tally.rounded:,}" if tally.rounded else ""
    return f"{tally.total():,} {line}s: {stood}, {tally.rejected:,} rejected ({pace}){rounded}"
