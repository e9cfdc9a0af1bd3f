"""Sends the batches of an import, and counts what became of their records.

Batches are sent several at the same time, and counted in the order of the source.
"""

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
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

from service.commands.imports.import_records import Batch, Post, Record, RejectsFile
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
    queued: bool
    rounds: bool


@dataclass(frozen=True, slots=True)
class Source:
    """The source of an import: batches of records, in `size` units of which `Batch.done` counts those that were read.

    `line` is the word for one record, and `heading` the first line of a file of rejected records. `name_record` says
    which record was rejected. `advice` says what to do if too many are. `path` is the file, if it is one.
    """

    line: str
    heading: bytes
    name_record: Callable[[Record], str]
    advice: str
    size: int
    path: Path | None
    batches: AsyncIterator[Batch]


@dataclass(slots=True)
class Tally:
    applied: int = 0
    unchanged: int = 0
    duplicate: int = 0
    rejected: int = 0
    accepted: int = 0  # lines whose posts wait in the ingest queue
    rounded: int = 0  # number of rounded values; a line may have several

    def total(self) -> int:
        return self.applied + self.unchanged + self.duplicate + self.rejected + self.accepted

    def count_line(self, status: str) -> None:
        """Count one line. A status that this command does not know counts as applied, since it was not rejected."""
        known = status if status in ("unchanged", "duplicate", "rejected", "accepted") else "applied"
        setattr(self, known, getattr(self, known) + 1)


async def send_source(client: AsyncClient, job: Job, source: Source, *, concurrency: int) -> Tally:
    """Send all records of a source, print a summary, and return what became of the records.

    If too many records are rejected, this function ends the command. If the service fails, it says what to do, and
    raises the RankcurveError.
    """
    began_s = time.monotonic()
    tally = Tally()
    rejects = RejectsFile(job.rejects, source.heading, source.path) if job.rejects else None
    with rejects or contextlib.nullcontext():
        try:
            await send_records(client, job, source, tally, rejects, concurrency)
        except RankcurveError as error:
            if may_succeed_later(error):
                typer.echo(f"stopped; run the same command again: no {source.line} counts twice", err=True)
            raise
    typer.echo(summary_text(tally, source.line, time.monotonic() - began_s))
    return tally


async def send_records(
    client: AsyncClient, job: Job, source: Source, tally: Tally, rejects: RejectsFile | None, concurrency: int
) -> None:
    """Send all records, and report the rejected ones after each batch. End the command if too many are rejected."""
    screen = Console(stderr=True, highlight=False)
    shown = itertools.count(1)
    send = partial(client.post, job.board, queued=job.queued, split=True, raise_rejected=False)
    sending = contextlib.aclosing(send_batches(send, source.batches, concurrency=concurrency))
    with make_progress_bar(screen, source.line) as bar:
        task = bar.add_task(f"import {job.board}", total=source.size, lines=0)
        async with sending as sent:
            async for batch, results in sent:
                for record, reason in count_results(batch, results, tally):
                    if rejects:
                        rejects.write_rejection(record, reason)
                    show_rejection(screen, source, record, reason, next(shown))
                bar.update(task, completed=batch.done, lines=tally.total())
                if tally.rejected > job.rejected_max:
                    fail(
                        f"stopped: {tally.rejected:,} {source.line}s rejected (--rejected-max {job.rejected_max}); "
                        f"{source.advice} If it is right, run again with a larger --rejected-max"
                    )


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
            flying.append((batch, asyncio.create_task(send(batch.posts()))))
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


def count_results(batch: Batch, results: list[PostResult], tally: Tally) -> Iterator[tuple[Record, str]]:
    """Count the records of a batch, and yield the rejected ones with the reason."""
    answers = iter(results)
    for record in batch.records:
        reason = record.outcome
        if not isinstance(reason, str):
            tally.rounded += reason[1]
            result = next(answers)
            tally.count_line(result.status)
            if result.status != "rejected":
                continue
            reason = (result.error or Problem(code="rejected")).text()
        else:
            tally.count_line("rejected")
        yield record, reason


def show_rejection(screen: Console, source: Source, record: Record, reason: str, number: int) -> None:
    """Print a rejected record, if it is one of the first; `number` counts them."""
    if number <= SHOWN_REJECTIONS_MAX:
        hint = " (--round rounds it)" if TOO_FINE in reason else ""
        screen.print(f"{source.name_record(record)}: {reason}{hint}", markup=False, soft_wrap=True)
    elif number == SHOWN_REJECTIONS_MAX + 1:
        screen.print(f"more {source.line}s were rejected; --rejects FILE lists them all", markup=False)


def may_succeed_later(error: RankcurveError) -> bool:
    """Return whether the same command may succeed later."""
    own_fault = isinstance(error, ApiError) and error.status < 500 and error.status not in (408, 429)
    return not own_fault and not isinstance(error, UnexpectedAnswerError)


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


def summary_text(tally: Tally, line: str, seconds: float) -> str:
    """Return one line with the counts of all outcomes, and the speed."""
    stood = f"{tally.applied:,} applied, {tally.unchanged:,} unchanged, {tally.duplicate:,} duplicate"
    if tally.accepted:
        stood = f"{tally.accepted:,} accepted, {stood}"
    total = tally.total()
    pace = f"{total:,} in {seconds:.1f} s, {total / max(seconds, 0.001):,.0f}/s"
    rounded = f"; values rounded: {tally.rounded:,}" if tally.rounded else ""
    return f"{total:,} {line}s: {stood}, {tally.rejected:,} rejected ({pace}){rounded}"
