"""Imports a CSV file: each line becomes one post. Its id is made of the content of the file, the mapping and the line.

A run of the same command sends every line again, under the same post ids. If the service already has a post, it answers
`duplicate`.
"""

import csv
import hashlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Board

from service.commands.imports.import_records import (
    Batch,
    Outcome,
    Post,
    Record,
    UnusableSourceError,
    owner_fault,
    reasons_path,
    rounded_text,
    text_fault,
)
from service.commands.imports.sending import Job, Source, send_source

LINE_BYTES_MAX = 1024 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class CsvFile:
    path: Path
    owner_heading: str
    delimiter: str
    label: str

    async def import_into(self, client: AsyncClient, job: Job) -> None:
        """Run the whole import. Exit with code 1 if lines were rejected."""
        board = await client.board(job.board)
        with self.path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            lines = Lines(stream)
            rows = csv.reader(lines, delimiter=self.delimiter)
            try:
                headings = [heading.strip() for heading in next(rows, [])]
            except csv.Error as cause:
                raise UnusableSourceError(f"{self.path}: the first line is not CSV: {cause}") from cause
            if not headings:
                raise UnusableSourceError(f"{self.path} is empty: the first line must hold the headings")
            fields = map_fields(board, job, self, headings)
            identity = import_identity(digest, self.owner_heading, fields, self.label)
            source = Source(
                line="line",
                heading=lines.take_record(),
                name_record=lambda record: f"line {record.line}",
                advice="is the mapping right? With another mapping, lines that were applied count again.",
                size=self.path.stat().st_size,
                path=self.path,
                batches=read_batches(
                    lines, rows, RecordReader(headings, self.owner_heading, fields, identity), job.batch
                ),
            )
            concurrency = 1 if order_matters(board, fields) else job.concurrency
            counts = await send_source(client, job, source, concurrency=concurrency)
        if counts["rejected"]:
            typer.echo(advice_after_rejections(self.path, job.rejects), err=True)
            raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Field:
    """A board column, and the heading of its CSV column. With `scale`, values are rounded to that many decimals."""

    column: str
    heading: str
    text: bool
    scale: int | None


class Lines:
    """Yields the physical lines of a file as text. Bytes that are not valid UTF-8 become surrogates."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._raw: list[bytes] = []
        self.read_bytes = 0
        self.read_lines = 0

    def take_record(self) -> bytes:
        """Return the bytes of the lines that were read since the last call."""
        record = b"".join(self._raw)
        self._raw.clear()
        return record

    def __iter__(self) -> Iterator[str]:
        while raw := self._stream.readline(LINE_BYTES_MAX + 1):
            if len(raw) > LINE_BYTES_MAX:
                raise UnusableSourceError(f"line {self.read_lines + 1} is longer than {LINE_BYTES_MAX:,} bytes")
            text = raw if self.read_bytes else raw.removeprefix(BYTE_ORDER_MARK)
            self._raw.append(raw)
            self.read_bytes += len(raw)
            self.read_lines += 1
            yield text.decode("utf-8", "surrogateescape")


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
    fields: dict[str, Field] = {}
    for name, heading in pairs:
        if name not in columns:
            raise UnusableSourceError(f"{job.board} has no column {name!r}; it has {', '.join(columns)}")
        if name in fields:
            raise UnusableSourceError(f"column {name} is mapped twice")
        text = columns[name].type == "text"
        fields[name] = Field(name, heading, text, columns[name].scale if job.rounds and not text else None)
    for heading in (file.owner_heading, *(heading for _, heading in pairs)):
        if headings.count(heading) != 1:
            what = "no" if heading not in headings else "more than one"
            raise UnusableSourceError(f"{file.path} has {what} heading {heading!r}; it has {', '.join(headings)}")
    return tuple(fields.values())


def import_identity(digest: str, owner_heading: str, fields: Sequence[Field], label: str) -> str:
    """Return 32 hexadecimal digits for the post ids, made from the content, the mapping and the label.

    An import with another mapping must make other post ids, because the service refuses a known post id with other
    stats. Rounding is no part of it: the service has no post of a line that was rejected for its digits.
    """
    parts = [digest, label, owner_heading, *sorted(f"{each.column}={each.heading}" for each in fields)]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def order_matters(board: Board, fields: tuple[Field, ...]) -> bool:
    """Return whether the outcome depends on which of two batches arrives first."""
    mapped = {each.column for each in fields}
    return board.ties == "earliest" or any(each.merge == "last" for each in board.columns if each.name in mapped)


async def read_batches(
    lines: Lines, rows: Iterator[list[str]], reader: "RecordReader", batch_posts_max: int
) -> AsyncIterator[Batch]:
    """Yield the records after the headings in batches of at most `batch_posts_max`. Blank lines are no records."""
    records: list[Record] = []
    while True:
        line = lines.read_lines + 1
        try:
            outcome = reader.read_post(line, next(rows))
        except StopIteration:
            break
        except csv.Error as cause:
            outcome = f"not CSV: {cause}"
        raw = lines.take_record()
        if outcome is not None:
            records.append(Record(line, raw, outcome))
        if len(records) == batch_posts_max:
            yield Batch(records, lines.read_bytes)
            records = []
    yield Batch(records, lines.read_bytes)


@dataclass(frozen=True, slots=True)
class RecordReader:
    """Makes posts of the records of a file."""

    headings: Sequence[str]
    owner_heading: str
    fields: Sequence[Field]
    identity: str

    def read_post(self, line: int, row: list[str]) -> Outcome | None:
        """Return the post of a record, or the reason why it is no post. For a blank line return None."""
        if not row:
            return None
        if len(row) != len(self.headings):
            return f"{len(row)} cells, but {len(self.headings)} headings"
        cells = dict(zip(self.headings, row, strict=True))
        if reason := owner_fault(owner := cells[self.owner_heading]):
            return reason
        stats: dict[str, str] = {}
        rounded = 0
        for each in self.fields:
            cell = cells[each.heading] if each.text else cells[each.heading].strip()
            if not cell:
                continue  # an empty cell means that the post has no value for this column
            if each.text and (reason := text_fault(cell)):
                return f"{each.heading}: {reason}"
            if each.scale is not None and (nearest := rounded_text(cell, each.scale)) is not None:
                cell = nearest
                rounded += 1
            stats[each.column] = cell
        if not stats:
            return "no value in any of the mapped columns"
        post: Post = {"owner": owner, "stats": stats, "post_id": f"import:{self.identity}:{line}"}
        return post, rounded


def advice_after_rejections(path: Path, rejects: Path | None) -> str:
    todo = (
        f"correct {rejects} (reasons: {reasons_path(rejects)}) and import that file by itself"
        if rejects
        else "put only the corrected lines, under the same headings, in a new file (--rejects FILE writes one)"
    )
    return f"to add the rejected lines, {todo}; if you edit {path} and import it again, its other lines count again"
