"""The note of what was imported from a file into columns that add up, beside the file.

The rule: post ids are made of file and mapping, so the service takes the same file with another mapping for new posts.
Only this note knows better. Losing it costs a warning, never correctness.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

IMPORTS_MAX = 100  # noted; the oldest are forgotten


class Imported(msgspec.Struct, frozen=True):
    """One import of a file: its content, where it went, and the columns of merge `sum` that it fed.

    `identity` is the part of the post ids that tells imports apart; `columns` are written COLUMN=HEADING.
    """

    digest: str
    url: str
    board: str
    label: str
    identity: str
    columns: tuple[str, ...]

    def remaps(self, other: Imported) -> bool:
        """Whether it is the same file to the same place by another mapping; another label says that it is meant so."""
        same = ("digest", "url", "board", "label")
        return self.identity != other.identity and all(getattr(self, name) == getattr(other, name) for name in same)


class ImportNote:
    """The note beside a file; `this` is the import that begins."""

    def __init__(self, path: Path, this: Imported) -> None:
        self.path = path
        self.partial_path = path.with_name(f"{path.name}.partial")  # written whole, then put in the place of the other
        self._this = this
        self._recorded = not this.columns

    def fed_before(self) -> list[str]:
        """COLUMN=HEADING of what earlier imports of this file by other mappings fed and this one would feed again."""
        again = {text.partition("=")[0] for text in self._this.columns}
        fed = {text for each in self._read() if self._this.remaps(each) for text in each.columns}
        return sorted(text for text in fed if text.partition("=")[0] in again)

    def record(self) -> None:
        """Note that lines of this import count, once; where the note cannot be written, go on without."""
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
