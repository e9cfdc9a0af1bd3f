"""Copies a sorted set of Redis: each member becomes an owner, and its score replaces the owner's value.

ZSCAN returns every member that is in the set during the whole scan at least once, and does not block Redis. A score
that changes meanwhile may be copied in its old form, so a second import is needed once Redis is at rest.
"""

import csv
import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Board, Column

from service.commands.imports.import_records import (
    Batch,
    Outcome,
    Record,
    UnusableSourceError,
    csv_record,
    owner_fault,
    rounded_text,
)
from service.commands.imports.sending import Job, Source, count_records, send_source
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

    async def import_into(self, client: AsyncClient, job: Job) -> None:
        """Run the whole import. Exit with code 1 if members were rejected, or if the set vanished meanwhile."""
        try:
            from redis.asyncio import Redis
            from redis.exceptions import RedisError
        except ImportError:
            fail("--redis needs the package redis: pip install 'rankcurve[redis]'")
        board = await client.board(job.board)
        column = choose_column(board, job, merge=self.merge)
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
                kind = "stats" if self.merge else "set"
                read_post = partial(read_member, column=column, rounds=job.rounds, kind=kind)
                source = Source(
                    line="member",
                    heading=csv_record("member", "score"),
                    name_record=lambda record: f"member {member_of(record.raw)!a}",
                    advice=f"do the scores fit the column {column.name}?",
                    size=size,
                    path=None,
                    batches=scan_members(redis, self.key, read_post, job.batch),
                )
                counts = await send_source(client, job, source, concurrency=job.concurrency)
                copied, left = count_records(counts), int(await redis.zcard(self.key))
        except (RedisError, ValueError) as cause:
            raise UnusableSourceError(f"{self._place()}: {cause}") from cause
        if counts["rejected"]:
            typer.echo(f"the rejected members are in {job.rejects or 'no file (--rejects FILE writes one)'}", err=True)
        if max(copied, left) < size:
            fail(
                f"{self._place()} had {size:,} members when the copy began and has {left:,} now, so it was emptied, "
                f"renamed or replaced meanwhile, and only {copied:,} members were read; copy it again"
            )
        if counts["rejected"]:
            raise typer.Exit(1)

    def _place(self) -> str:
        """Return the address and the key, without user and password."""
        return f"{self.url.rpartition('@')[2]} {self.key}"


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


async def count_members(redis: "Redis", key: str) -> int:
    """Return the number of members. Raises UnusableSourceError if the key holds no sorted set."""
    kind = str(await redis.type(key))
    if kind != "zset":
        found = "there is no such key" if kind == "none" else f"it is a {kind}"
        raise UnusableSourceError(f"{key} is no sorted set of this Redis: {found}")
    return int(await redis.zcard(key))


async def scan_members(
    redis: "Redis", key: str, read_post: Callable[[str, float], Outcome], batch_posts: int
) -> AsyncIterator[Batch]:
    """Yield all members, in batches of about `batch_posts`. Redis chooses their exact size."""
    cursor, done = 0, 0
    while True:
        cursor, found = await redis.zscan(key, cursor=cursor, count=batch_posts)
        twins = await find_twins(redis, key, [str(member) for member, _ in found])
        records: list[Record] = []
        for member, score in found:
            done += 1
            owner, value = str(member), float(score)
            outcome = twins.get(owner) or read_post(owner, value)
            records.append(Record(done, csv_record(owner, repr(value)), outcome))
        yield Batch(records, done)
        if int(cursor) == 0:
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


def read_member(owner: str, score: float, *, column: Column, rounds: bool, kind: str) -> Outcome:
    """Return the post of a member, or the reason why it is no post.

    `kind` is the member of a post that holds the score: `stats` or `set`.
    """
    if reason := owner_fault(owner):
        return reason
    text = repr(score + 0.0)  # + 0.0 turns -0.0 into 0.0
    nearest = rounded_text(text, column.scale) if rounds else None
    return {"owner": owner, kind: {column.name: nearest or text}}, int(nearest is not None)


def member_of(record: bytes) -> str:
    return next(csv.reader([record.decode("utf-8", "surrogateescape")]))[0]
