"""Turns the lines of a CSV file into posts: the part of `rankcurve import` that uses no network.

A record that cannot be a post becomes a rejected line with its number and reason, and the import goes on. Reading can
start at the byte offset of any record, so an import can be resumed.
"""

import csv
import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path
from typing import BinaryIO

LINE_BYTES_MAX = 1024 * 1024
OWNER_LETTERS_MAX = 128
VALUE_LETTERS_MAX = 64
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
EXACTLY = Context(prec=VALUE_LETTERS_MAX, rounding=ROUND_HALF_UP)
VALUE = re.compile(r"-?[0-9]+(\.[0-9]+)?(?P<exponent>[eE][+-]?[0-9]{1,3})?")

Post = dict[str, object]


class UnusableSourceError(Exception):
    """The file, or the sorted set, cannot be imported."""


@dataclass(frozen=True, slots=True)
class Field:
    """A board column, and the heading of its CSV column. With `scale`, values are rounded to that many decimals."""

    column: str
    heading: str
    text: bool = False
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The way an import reads its file. `identity` begins its post ids; a second run of the import has the same one."""

    owner_heading: str
    fields: tuple[Field, ...]
    delimiter: str
    identity: str


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The place in the source from which an import continues.

    In a file, a record begins at byte `offset`, after `line` physical lines. In a sorted set of Redis, `offset` is the
    cursor of the next ZSCAN, and `line` counts the members before it.
    """

    offset: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected line. `line` is 1-based, as in editors. `record` holds its bytes in CSV, unchanged."""

    line: int
    reason: str
    record: bytes


@dataclass(slots=True)
class Batch:
    """Posts of neighbouring lines, the rejected lines between them, and the position after the last line."""

    end: SourcePosition
    lines: list[int] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)  # the record of each post
    posts: list[Post] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    rounded: int = 0

    def add_outcome(self, line: int, record: bytes, outcome: tuple[Post, int] | str | None) -> None:
        """Add a post with its number of rounded values, or a reason for a rejection. Ignore None, for a blank line."""
        if isinstance(outcome, str):
            self.rejected.append(Rejection(line, outcome, record))
        elif outcome is not None:
            self.lines.append(line)
            self.records.append(record)
            self.posts.append(outcome[0])
            self.rounded += outcome[1]


class Lines:
    """Yields the physical lines of a file as text. Bytes that are not valid UTF-8 become surrogates."""

    def __init__(self, stream: BinaryIO, position: SourcePosition) -> None:
        self._stream = stream
        self._raw: list[bytes] = []
        self.position = position
        stream.seek(position.offset)

    def take_record(self) -> bytes:
        """Return the bytes of the lines that were read since the last call."""
        record = b"".join(self._raw)
        self._raw.clear()
        return record

    def __iter__(self) -> Iterator[str]:
        while raw := self._stream.readline(LINE_BYTES_MAX + 1):
            if len(raw) > LINE_BYTES_MAX:
                raise UnusableSourceError(f"line {self.position.line + 1} is longer than {LINE_BYTES_MAX:,} bytes")
            first = self.position.offset == 0
            self._raw.append(raw)
            self.position = SourcePosition(self.position.offset + len(raw), self.position.line + 1)
            yield (raw.removeprefix(BYTE_ORDER_MARK) if first else raw).decode("utf-8", "surrogateescape")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of the content, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def import_identity(digest: str, owner_heading: str, fields: Sequence[Field], label: str) -> str:
    """Return 32 hexadecimal digits for the post ids, made from the content, the mapping and the label.

    An import with another mapping must make other post ids, because the service refuses a known post id with other
    stats.
    """
    parts = [digest, label, owner_heading, *sorted(f"{each.column}={each.heading}" for each in fields)]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def read_headings(path: Path, delimiter: str) -> tuple[list[str], bytes]:
    """Return the headings in the first record, and the bytes of the record. Raises UnusableSourceError."""
    try:
        with path.open("rb") as stream:
            lines = Lines(stream, SourcePosition())
            headings = next(csv.reader(lines, delimiter=delimiter), [])
    except csv.Error as cause:
        raise UnusableSourceError(f"{path}: the first line is not CSV: {cause}") from cause
    if not headings:
        raise UnusableSourceError(f"{path} is empty: the first line must hold the headings")
    return [heading.strip() for heading in headings], lines.take_record()


def read_batches(path: Path, plan: Plan, start: SourcePosition, *, batch_posts_max: int) -> Iterator[Batch]:
    """Yield the records from `start` on, in batches of at most `batch_posts_max`.

    If `start` is `SourcePosition()`, begin with the record after the headings.
    """
    headings, _ = read_headings(path, plan.delimiter)
    with path.open("rb") as stream:
        lines = Lines(stream, start)
        rows = csv.reader(lines, delimiter=plan.delimiter)
        if start.offset == 0:
            next(rows, None)
            lines.take_record()
        reader = RecordReader(plan, headings)
        batch = Batch(lines.position)
        while True:
            line = lines.position.line + 1
            try:
                outcome = reader.read_post(line, next(rows))
            except StopIteration:
                break
            except csv.Error as cause:
                outcome = f"not CSV: {cause}"
            batch.add_outcome(line, lines.take_record(), outcome)
            batch.end = lines.position
            if len(batch.posts) + len(batch.rejected) >= batch_posts_max:
                yield batch
                batch = Batch(lines.position)
        batch.end = lines.position
        yield batch


class RecordReader:
    def __init__(self, plan: Plan, headings: list[str]) -> None:
        self._cells_count = len(headings)
        self._owner_index = headings.index(plan.owner_heading)
        self._fields = [(each, headings.index(each.heading)) for each in plan.fields]
        self._prefix = f"import:{plan.identity}:"

    def read_post(self, line: int, row: list[str]) -> tuple[Post, int] | str | None:
        """Return the post of a record and how many of its values were rounded, or the reason why it is no post.

        For a blank line return None.
        """
        if not row:
            return None
        if len(row) != self._cells_count:
            return f"{len(row)} cells, but {self._cells_count} headings"
        owner = row[self._owner_index]
        if reason := owner_fault(owner):
            return reason
        stats: dict[str, str] = {}
        rounded = 0
        for each, index in self._fields:
            cell = row[index] if each.text else row[index].strip()
            if not cell:
                continue  # an empty cell means that the post has no value for this column
            if each.text and (reason := text_fault(cell)):
                return f"{each.heading}: {reason}"
            if not each.text:
                found = VALUE.fullmatch(cell)
                if found is not None and found["exponent"] is not None:
                    cell = f"{Decimal(cell):f}"
                if found is None or len(cell) > VALUE_LETTERS_MAX:
                    return f"{each.heading}: {cell[:40]!r} is not a decimal number like 600 or -1.25"
            if each.scale is not None and (nearest := rounded_text(cell, each.scale)) is not None:
                cell = nearest
                rounded += 1
            stats[each.column] = cell
        if not stats:
            return "no value in any of the mapped columns"
        return {"owner": owner, "stats": stats, "post_id": f"{self._prefix}{line}"}, rounded


def rounded_text(cell: str, scale: int) -> str | None:
    """Return the decimal rounded to `scale` digits, halves away from zero, or None if it needs no rounding."""
    _, _, fraction = cell.partition(".")
    if len(fraction.rstrip("0")) <= scale:
        return None
    nearest = Decimal(cell).quantize(Decimal(1).scaleb(-scale), context=EXACTLY)
    return f"{nearest if nearest else abs(nearest):f}"


def owner_fault(owner: str) -> str | None:
    """Return why `owner` cannot be an owner, or None."""
    if not owner or len(owner) > OWNER_LETTERS_MAX:
        return f"an owner has 1 to {OWNER_LETTERS_MAX} characters, and this one has {len(owner)}"
    if not owner.isprintable() and any(unicodedata.category(letter) == "Cc" for letter in owner):
        return "the owner has control characters"
    return text_fault(owner)


def text_fault(text: str) -> str | None:
    """Return why `text` cannot be sent as JSON, or None. Surrogates stand for bytes that are not valid UTF-8."""
    if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
        return None
    return "not UTF-8"
