"""The two files that an import keeps beside a CSV file: how far it came, and which imports fed columns of merge `sum`.

Post ids are made from the file and the mapping. If the same file is imported with another mapping, its lines are
therefore new posts to the service, and their values are added a second time. An import can warn of that only with
the note of earlier imports.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from service.commands.imports.import_rejects import RejectsPosition

RESUME_FORMAT = 1
IMPORTS_MAX = 100  # imports that a note keeps; the oldest ones are dropped


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


class ResumeState(msgspec.Struct):
    """How far an import came. The first four members say which import; another import starts at line 1."""

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
