"""Copies a sorted set of Redis: each member becomes an owner, and its score replaces the owner's value.

ZSCAN returns every member that is in the set during the whole scan at least once, and does not block Redis. A score
that changes meanwhile may be copied in its old form, so a second import is needed once Redis is at rest. A cursor of
ZSCAN is valid as long as the same process of Redis runs, so the resume file names that process.
"""

import csv
import io
import unicodedata
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Board, Column

from service.commands.imports.import_files import (
    RESUME_FORMAT,
    ResumeState,
    Tally,
    partial_path,
    reasons_path,
    refuse_shared_files,
)
from service.commands.imports.import_lines import (
    VALUE_LETTERS_MAX,
    Batch,
    Post,
    SourcePosition,
    UnusableSourceError,
    owner_fault,
    rounded_text,
)
from service.commands.imports.sending import Job, Source, send_source
from service.commands.reading.ranks import first_ranked
from service.commands.target import fail

if TYPE_CHECKING:
    from redis.asyncio import Redis

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class SortedSet:
    url: str
    key: str
    merge: bool

    def resume_path(self, board: str) -> Path:
        return Path(f"{quote(self.key, safe='')}.{board}.resume")

    async def import_into(self, client: AsyncClient, job: Job) -> None:
        """Run the whole import. Exit with code 1 if members were rejected, or if the set vanished meanwhile."""
        try:
            from redis.asyncio import Redis
            from redis.exceptions import RedisError
        except ImportError:
            fail("--redis needs the package redis: pip install 'rankcurve[redis]'")
        board = await client.board(job.board)
        column = choose_column(board, job, merge=self.merge)
        refuse_shared_files(files_by_purpose(job))
        try:
            # Members that are not UTF-8 become text with surrogates, which `owner_fault` finds.
            async with Redis.from_url(
                self.url,
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
                decode_responses=True,
                encoding_errors="surrogateescape",
            ) as redis:
                size = await count_members(redis, self.key)
                tally = await self._copy(client, job, column, redis, size)
                left = int(await redis.zcard(self.key))
        except (RedisError, ValueError) as cause:
            raise UnusableSourceError(f"{self._place()}: {cause}") from cause
        if tally.rejected:
            typer.echo(f"the rejected members are in {job.rejects or 'no file (--rejects FILE writes one)'}", err=True)
        if max(tally.total(), left) < size:
            fail(
                f"{self._place()} had {size:,} members when the copy began and has {left:,} now, so it was emptied, "
                f"renamed or replaced meanwhile, and only {tally.total():,} members were read; copy it again"
            )
        if tally.rejected:
            raise typer.Exit(1)

    async def _copy(self, client: AsyncClient, job: Job, column: Column, redis: "Redis", size: int) -> Tally:
        kind = "stats" if self.merge else "set"
        reader = MemberReader(column.name, kind, column.scale if job.rounds else None)
        source = Source(
            line="member",
            heading=csv_record("member", "score"),
            name_line=lambda rejection: f"member {member_of(rejection.record)!a}",
            advice=f"do the scores fit the column {column.name}?",
            size=size,
            measure=lambda position: position.line,
            read_batches=lambda position: scan_members(redis, self.key, reader, position, job.batch),
        )
        identity = f"{self._place()} {column.name} {kind} {await find_run_id(redis)}{job.rounds * '+round'}"
        start = ResumeState(RESUME_FORMAT, identity, job.board, client.transport.url)
        return await send_source(client, job, source, start, concurrency=job.concurrency, on_batch=lambda: None)

    def _place(self) -> str:
        """Return the address and the key, without user and password."""
        return f"{self.url.rpartition('@')[2]} {self.key}"


def files_by_purpose(job: Job) -> dict[str, Path]:
    files = {"the note for resuming": job.resume_path, "the same while it is written": partial_path(job.resume_path)}
    if job.rejects:
        files |= {"the file for rejected members": job.rejects, "the file for their reasons": reasons_path(job.rejects)}
    return files


def choose_column(board: Board, job: Job, *, merge: bool) -> Column:
    """Return the column that takes the scores. Raises UnusableSourceError."""
    if len(job.columns) > 1:
        raise UnusableSourceError("a sorted set has one score for each member, so --column names one column")
    name = job.columns[0] if job.columns else first_ranked(job.board, board)
    found = next((each for each in board.columns if each.name == name), None)
    if found is None or found.type == "text":
        numbers = ", ".join(each.name for each in board.columns if each.type != "text")
        raise UnusableSourceError(f"{job.board} has no column of numbers named {name!r}; it has {numbers}")
    if merge and found.merge not in ("max", "min"):
        raise UnusableSourceError(f"--merge needs a column of merge max or min, and {name} merges by {found.merge}")
    return found


async def find_run_id(redis: "Redis") -> str:
    """Return the id of the process of Redis, which changes when it starts again. Without one, no run can continue."""
    return str((await redis.info("server")).get("run_id") or uuid4().hex)


async def count_members(redis: "Redis", key: str) -> int:
    """Return the number of members. Raises UnusableSourceError if the key holds no sorted set."""
    kind = str(await redis.type(key))
    if kind != "zset":
        found = "there is no such key" if kind == "none" else f"it is a {kind}"
        raise UnusableSourceError(f"{key} is no sorted set of this Redis: {found}")
    return int(await redis.zcard(key))


async def scan_members(
    redis: "Redis", key: str, reader: "MemberReader", start: SourcePosition, batch_posts: int
) -> AsyncIterator[Batch]:
    """Yield the members from `start` on, in batches of about `batch_posts`. Redis chooses their exact size."""
    cursor, line = start.offset, start.line
    while True:
        cursor, found = await redis.zscan(key, cursor=cursor, count=batch_posts)
        batch = Batch(SourcePosition(int(cursor), line + len(found)))
        twins = await find_twins(redis, key, [str(member) for member, _ in found])
        for member, score in found:
            line += 1
            owner, value = str(member), float(score)
            outcome = twins.get(owner) or reader.read_post(owner, value)
            batch.add_outcome(line, csv_record(owner, repr(value)), outcome)
        yield batch
        if batch.end.offset == 0:
            return


async def find_twins(redis: "Redis", key: str, members: Sequence[str]) -> dict[str, str]:
    """Return why members can't be copied that differ from another one only in how Unicode composes their letters.

    The service normalises owners, so both would be the same owner, and one score would replace the other. A member is
    compared with its fully composed and its fully decomposed form.
    """
    pairs = [
        (member, other)
        for member in members
        if not member.isascii()
        for form in ("NFC", "NFD")
        if (other := unicodedata.normalize(form, member)) != member
    ]
    async with redis.pipeline(transaction=False) as pipeline:
        for _, other in pairs:
            pipeline.zscore(key, other)
        scores = await pipeline.execute()
    found = zip(pairs, scores, strict=True)
    return {
        member: f"the member {other!a} is the same owner after normalisation (NFC)"
        for (member, other), score in found
        if score is not None
    }


class MemberReader:
    """Makes posts of members. `kind` is the member of a post that holds the score: `stats` or `set`."""

    def __init__(self, column: str, kind: str, scale: int | None) -> None:
        self._column = column
        self._kind = kind
        self._scale = scale

    def read_post(self, owner: str, score: float) -> tuple[Post, int] | str:
        """Return the post of a member and whether its score was rounded (0 or 1), or the reason why it is no post."""
        if reason := owner_fault(owner):
            return reason
        if (text := score_text(score)) is None:
            return f"the score {score!r} is no finite number of at most {VALUE_LETTERS_MAX} digits"
        nearest = None if self._scale is None else rounded_text(text, self._scale)
        return {"owner": owner, self._kind: {self._column: nearest or text}}, nearest is not None


def score_text(score: float) -> str | None:
    """Return the shortest decimal that gives this binary number back, or None for a number that has none."""
    number = Decimal(repr(score + 0.0))  # + 0.0 turns -0.0 into 0.0
    if not number.is_finite() or len(text := f"{number.normalize():f}") > VALUE_LETTERS_MAX:
        return None
    return text


def member_of(record: bytes) -> str:
    return next(csv.reader([record.decode("utf-8", "surrogateescape")]))[0]


def csv_record(*cells: str) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", "surrogateescape")
