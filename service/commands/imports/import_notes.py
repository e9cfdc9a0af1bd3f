"""A note beside a CSV file. It records which imports of the file fed columns that merge by `sum`.

Post ids are made from the file and the mapping. If the same file is imported with another mapping, its lines are
therefore new posts to the service, and their values are added a second time. An import can warn of that only with
this note.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

IMPORTS_MAX = 100  # imports that a note keeps; the oldest ones are dropped


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
    """The note beside a file. `this` is the import that is starting."""

    def __init__(self, path: Path, this: Imported) -> None:
        self.path = path
        self.partial_path = path.with_name(f"{path.name}.partial")  # written first, then renamed to `path`
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
            self.partial_path.write_bytes(msgspec.json.encode([*others, self._this][-IMPORTS_MAX:]))
            os.replace(self.partial_path, self.path)

    def _read(self) -> list[Imported]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=list[Imported])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return []
