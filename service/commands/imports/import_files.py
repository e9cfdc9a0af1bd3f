"""The files that an import keeps beside a CSV file: how far it came, which imports fed columns of merge `sum`, rejects.

Post ids are made from the file and the mapping. If the same file is imported with another mapping, its lines are
therefore new posts to the service, and their values are added a second time. An import can warn of that only with
the note of earlier imports.

Rejected records go to a file that can be corrected and imported, and the reasons beside it. That file begins with the
heading line of the CSV file, and each record is copied byte for byte. The import refuses to start if the rejects would
overwrite another file of the import.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import os
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from service.commands.imports.import_lines import Rejection, UnusableSourceError

RESUME_FORMAT = 1
IMPORTS_MAX = 100  # imports that a note keeps; the oldest ones are dropped
REASONS_HEADINGS = ("line", "rejects_line", "reason")


def partial_path(path: Path) -> Path:
    """Return the path that `replace_file` writes first."""
    return path.with_name(f"{path.name}.partial")


def replace_file(path: Path, content: object) -> None:
    """Replace the whole file by the JSON of `content`. Raises OSError."""
    partial_path(path).write_bytes(msgspec.json.encode(content))
    os.replace(partial_path(path), path)


class Tally(msgspec.Struct):
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


class RejectsPosition(msgspec.Struct, frozen=True):
    """The part of a rejects file that belongs to counted batches. The next run replaces the rest."""

    path: str
    bytes: int
    crc: int  # the CRC-32 of the first `bytes` bytes of the file
    lines: int
    reasons_bytes: int


class ResumeState(msgspec.Struct):
    """The progress of an import. The first four members say which import; another import starts at line 1."""

    format: int
    identity: str
    board: str
    url: str
    offset: int = 0
    line: int = 0
    tally: Tally = msgspec.field(default_factory=Tally)
    rejects: RejectsPosition | None = None

    def is_continuation_of(self, other: ResumeState) -> bool:
        same = ("format", "identity", "board", "url")
        return all(getattr(self, name) == getattr(other, name) for name in same) and self.offset >= 0 and self.line >= 0


class ResumeFile:
    """A file beside the CSV file that holds the state of an unfinished import. Losing this file only costs time."""

    def __init__(self, path: Path, state: ResumeState) -> None:
        self.path = path
        self.state = state
        self.writable = True

    def load_state(self) -> None:
        """Continue with the state of an unfinished run of the same import, if there is one."""
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            held = msgspec.json.decode(self.path.read_bytes(), type=ResumeState)
            if held.is_continuation_of(self.state):
                self.state = held

    def save_state(self) -> bool:
        """Write the state. If this fails, return False and set `writable` to False; the import goes on without it."""
        try:
            replace_file(self.path, self.state)
        except OSError:
            self.writable = False
        return self.writable

    def delete_file(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


class Imported(msgspec.Struct, frozen=True):
    """One import of a file: its content, the board, and the columns with merge `sum` that it fed, as COLUMN=HEADING.

    `identity` is the part of the post ids that identifies the import.
    """

    digest: str
    url: str
    board: str
    label: str
    identity: str
    columns: tuple[str, ...]

    def is_remapped(self, other: Imported) -> bool:
        """Return whether the other import posted the same file to the same board, but with another mapping.

        With another label, the caller wants to add the values again, so the result is False.
        """
        same = ("digest", "url", "board", "label")
        return self.identity != other.identity and all(getattr(self, name) == getattr(other, name) for name in same)


class ImportNote:
    """The note of earlier imports. `this` is the import that is starting."""

    def __init__(self, path: Path, this: Imported) -> None:
        self.path = path
        self._this = this
        self._recorded = not this.columns

    def columns_fed_before(self) -> list[str]:
        """Return the columns that this import would feed again, as COLUMN=HEADING with the earlier heading."""
        again = {text.partition("=")[0] for text in self._this.columns}
        fed = {text for each in self._read() if self._this.is_remapped(each) for text in each.columns}
        return sorted(text for text in fed if text.partition("=")[0] in again)

    def record_import(self) -> None:
        """Add this import to the note, once. If the note cannot be written, go on without it."""
        if self._recorded:
            return
        self._recorded = True
        others = [each for each in self._read() if each.identity != self._this.identity]
        with contextlib.suppress(OSError):
            replace_file(self.path, [*others, self._this][-IMPORTS_MAX:])

    def _read(self) -> list[Imported]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=list[Imported])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return []


def reasons_path(rejects: Path) -> Path:
    return rejects.with_name(f"{rejects.name}.reasons")


def refuse_shared_files(files: Mapping[str, Path]) -> None:
    """Raise UnusableSourceError if two files of an import are the same. `files` maps purposes to paths."""
    for (one, path), (other, other_path) in itertools.combinations(files.items(), 2):
        if path.resolve() == other_path.resolve() or is_same_file(path, other_path):
            raise UnusableSourceError(f"{other_path} is both {one} and {other}; give another file")


def is_same_file(path: Path, other: Path) -> bool:
    """Return whether two paths lead to the same existing file."""
    try:
        return path.samefile(other)
    except OSError:
        return False


class RejectsFile:
    """Writes rejected records to `path`, after the `heading` line.

    With `position`, it appends them to the records of an earlier run. Use it as a context manager. Raises OSError if a
    file cannot be opened, and UnusableSourceError if it was changed since the earlier run.
    """

    def __init__(self, path: Path, heading: bytes, position: RejectsPosition | None) -> None:
        if position is not None and position.path != str(path.resolve()):
            position = None  # the earlier run wrote to another rejects file, so this run begins a new one
        reasons = reasons_path(path)
        self._path, self._lines, self._crc = path, 0, 0
        with ExitStack() as stack:
            self._records = stack.enter_context(path.open("r+b" if position else "wb"))
            self._reasons = stack.enter_context(reasons.open("r+b" if position else "wb"))
            if position is None:
                self._append(heading)
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
        self._append(rejection.record)

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
            raise UnusableSourceError(f"{self._path} was changed since the import stopped; give --rejects another file")
        self._records.truncate(position.bytes)
        self._reasons.truncate(position.reasons_bytes)
        self._reasons.seek(position.reasons_bytes)

    def _append(self, record: bytes) -> None:
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
