"""Sends the batches of an import, and counts what became of their records.

Batches are sent several at the same time, and counted in the order of the source.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, aclosing
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
OUTCOMES = ("accepted", "applied", "unchanged", "duplicate", "rejected")  # accepted: the post waits in the queue
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


async def send_source(client: AsyncClient, job: Job, source: Source, *, concurrency: int) -> Counter[str]:
    """Send all records, and report the rejected ones after each batch. Print a summary at the end.

    Return the number of records of each outcome, and that of rounded values as `rounded`.
    If too many records are rejected, this function ends the command. If the service fails, it says what to do, and
    raises the RankcurveError.
    """
    began_s, counts = time.monotonic(), Counter[str]()
    screen = Console(stderr=True, highlight=False)
    send = partial(client.post, job.board, queued=job.queued, split=True, raise_rejected=False)
    with ExitStack() as stack:
        rejects = None
        if job.rejects:
            rejects = stack.enter_context(RejectsFile(job.rejects, source.heading, source.path))
        bar = stack.enter_context(make_progress_bar(screen, source.line))
        task = bar.add_task(f"import {job.board}", total=source.size, lines=0)
        try:
            async with aclosing(send_batches(send, source.batches, concurrency=concurrency)) as sent:
                async for batch, results in sent:
                    for record, reason in count_results(batch, results, counts):
                        if rejects:
                            rejects.write_rejection(record, reason)
                        show_rejection(screen, source, record, reason, counts["rejected"])
                    bar.update(task, completed=batch.done, lines=count_records(counts))
                    if counts["rejected"] > job.rejected_max:
                        fail(
                            f"stopped: {counts['rejected']:,} {source.line}s rejected (--rejected-max "
                            f"{job.rejected_max}); {source.advice} If it is right, run again with a larger "
                            "--rejected-max"
                        )
        except RankcurveError as error:
            if may_succeed_later(error):
                typer.echo(f"stopped; run the same command again: no {source.line} counts twice", err=True)
            raise
    typer.echo(summary_text(counts, source.line, time.monotonic() - began_s))
    return counts


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


def count_results(batch: Batch, results: list[PostResult], counts: Counter[str]) -> Iterator[tuple[Record, str]]:
    """Count the records of a batch, and yield the rejected ones with the reason.

    A status that this command does not know counts as applied, since it was not rejected.
    """
    answers = iter(results)
    for record in batch.records:
        status, reason = "rejected", record.outcome
        if not isinstance(reason, str):
            counts["rounded"] += reason[1]
            result = next(answers)
            status = result.status if result.status in OUTCOMES else "applied"
            reason = (result.error or Problem(code="rejected")).text()
        counts[status] += 1
        if status == "rejected":
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


def count_records(counts: Counter[str]) -> int:
    return sum(counts[outcome] for outcome in OUTCOMES)


def summary_text(counts: Counter[str], line: str, seconds: float) -> str:
    """Return one line with the counts of all outcomes, and the speed."""
    shown = OUTCOMES if counts["accepted"] else OUTCOMES[1:]
    total = count_records(counts)
    pace = f"{total:,} in {seconds:.1f} s, {total / max(seconds, 0.001):,.0f}/s"
    rounded = f"; values rounded: {counts['rounded']:,}" if counts["rounded"] else ""
    return f"{total:,} {line}s: {', '.join(f'{counts[each]:,} {each}' for each in shown)} ({pace}){rounded}"
