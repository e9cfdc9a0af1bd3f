"""Writes the rejected records of an import to a file that can be corrected and imported, and the reasons beside it.

The file begins with the heading line of the CSV file, and each record is copied byte for byte. The import refuses to
start if the rejects would overwrite another file of the import.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from service.commands.imports.import_lines import Rejection, Span, UnusableFileError

REASONS_HEADINGS = ("line", "rejects_line", "reason")


class RejectsPosition(msgspec.Struct, frozen=True):
    """The part of a rejects file that belongs to counted batches. The next run replaces the rest."""

    path: str
    bytes: int
    crc: int  # the CRC-32 of the first `bytes` bytes of the file
    lines: int
    reasons_bytes: int


def reasons_path(rejects: Path) -> Path:
    return rejects.with_name(f"{rejects.name}.reasons")


def refuse_shared_files(files: Mapping[str, Path]) -> None:
    """Raise UnusableFileError if two files of an import are the same. `files` maps the purpose of each to its path."""
    for (one, path), (other, other_path) in itertools.combinations(files.items(), 2):
        if path.resolve() == other_path.resolve() or is_same_file(path, other_path):
            raise UnusableFileError(f"{other_path} is both {one} and {other}; give another file")


def is_same_file(path: Path, other: Path) -> bool:
    """Return whether two paths lead to the same existing file."""
    try:
        return path.samefile(other)
    except OSError:
        return False


class RejectsFile:
    """Writes the rejected records of `source` to `path`.

    With `position`, it appends them to the records of an earlier run. Use it as a context manager. Raises OSError if a
    file cannot be opened, and UnusableFileError if it was changed since the earlier run.
    """

    def __init__(self, path: Path, source: Path, heading: Span, position: RejectsPosition | None) -> None:
        if position is not None and position.path != str(path.resolve()):
            position = None  # the earlier run wrote to another rejects file, so this run begins a new one
        reasons = reasons_path(path)
        self._path, self._lines, self._crc = path, 0, 0
        with ExitStack() as stack:
            self._source = stack.enter_context(source.open("rb"))
            self._records = stack.enter_context(path.open("r+b" if position else "wb"))
            self._reasons = stack.enter_context(reasons.open("r+b" if position else "wb"))
            if position is None:
                self._copy(heading)
                self._note(REASONS_HEADINGS)
            else:
                self._go_on(position)
            self._files = stack.pop_all()

    def __enter__(self) -> RejectsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def write_rejection(self, rejection: Rejection) -> None:
        self._note((rejection.line, self._lines + 1, rejection.reason))
        if rejection.span is not None:
            self._copy(rejection.span)

    def current_position(self) -> RejectsPosition:
        """Flush the files, and return the position after the last record."""
        self._records.flush()
        self._reasons.flush()
        return RejectsPosition(
            str(self._path.resolve()), self._records.tell(), self._crc, self._lines, self._reasons.tell()
        )

    def _go_on(self, position: RejectsPosition) -> None:
        self._lines, self._crc = position.lines, position.crc
        kept = self._records.read(position.bytes)
        reasons_bytes = os.fstat(self._reasons.fileno()).st_size
        known = (len(kept), zlib.crc32(kept)) == (position.bytes, position.crc)
        if not known or reasons_bytes < position.reasons_bytes:
            raise UnusableFileError(f"{self._path} was changed since the import stopped; give --rejects another file")
        self._records.truncate(position.bytes)
        self._reasons.truncate(position.reasons_bytes)
        self._reasons.seek(position.reasons_bytes)

    def _copy(self, span: Span) -> None:
        self._source.seek(span.start)
        record = self._source.read(span.end - span.start)
        if not record.endswith(b"\n"):
            record += b"\n"  # the last line of a file may lack its line end
        self._records.write(record)
        self._crc = zlib.crc32(record, self._crc)
        self._lines += record.count(b"\n")

    def _note(self, row: tuple[object, ...]) -> None:
        cells = io.StringIO(newline="")
        csv.writer(cells, lineterminator="\n").writerow(row)
        self._reasons.write(cells.getvalue().encode("utf-8", "backslashreplace"))


def advice_after_rejections(path: Path, rejects: Path | None) -> str:
    todo = (
        f"correct {rejects} (reasons: {reasons_path(rejects)}) and import that file by itself"
        if rejects
        else "put only the corrected lines, under the same headings, in a new file (--rejects FILE writes one)"
    )
    return f"to add the rejected lines, {todo}; if you edit {path} and import it again, its other lines count again"
