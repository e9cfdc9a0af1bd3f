"""A note beside a CSV file that says what was imported from it into columns that add up.

Post ids are made of file and mapping, so the service takes the same file with another mapping for new posts. Only this
note tells that the values would be added a second time. Losing the note loses a warning and nothing else.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

IMPORTS_MAX = 100  # imports in a note; the oldest are forgotten


class Imported(msgspec.Struct, frozen=True):
    """One import of a file: its content, where it went, and the columns of merge `sum` that it fed.

    `identity` is the part of the post ids that tells imports apart. `columns` are written COLUMN=HEADING.
    """

    digest: str
    url: str
    board: str
    label: str
    identity: str
    columns: tuple[str, ...]

    def is_remapped(self, other: Imported) -> bool:
        """Return whether the other import took the same file to the same place by another mapping.

        Another label says that the caller means it.
        """
        same = ("digest", "url", "board", "label")
        return self.identity != other.identity and all(getattr(self, name) == getattr(other, name) for name in same)


class ImportNote:
    """The note beside a file. `this` is the import that begins."""

    def __init__(self, path: Path, this: Imported) -> None:
        self.path = path
        self.partial_path = path.with_name(f"{path.name}.partial")  # written as a whole, then renamed over the old one
        self._this = this
        self._recorded = not this.columns

    def columns_fed_before(self) -> list[str]:
        """Return COLUMN=HEADING of the columns that this import would feed again.

        Earlier imports of this file fed them by other mappings.
        """
        again = {text.partition("=")[0] for text in self._this.columns}
        fed = {text for each in self._read() if self._this.is_remapped(each) for text in each.columns}
        return sorted(text for text in fed if text.partition("=")[0] in again)

    def record_import(self) -> None:
        """Note, once, that lines of this import count. If the note cannot be written, go on without it."""
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
