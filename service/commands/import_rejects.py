"""The rejected lines of an import as a CSV file of their own, and what to do with it.

The rule: corrected, the file is imported by the command that made it, and counts only what was not counted before. So a
row keeps its cells as they came, one that was cut short or ran over stays refusable, and no row stands there twice.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence
from pathlib import Path

from service.commands.import_lines import Rejection, UnusableFile


class RejectsFile:
    """Rejected rows under the file's own headings, with line and reason as last columns.

    `line_done` is the last line accounted for by an earlier run of this import, 0 where it starts from the top: rows
    beyond it are read again, so they are dropped here. Raises UnusableFile where the file cannot be opened, or where an
    import that goes on finds something else in it.
    """

    def __init__(
        self, path: Path, headings: Sequence[str], *, taken: Collection[str], delimiter: str, line_done: int
    ) -> None:
        header = [*headings, free_name("line", (*headings, *taken)), free_name("reason", (*headings, *taken))]
        try:
            kept = rows_before(path, header, delimiter, line_done) if line_done else []
            self._stream = path.open("w", encoding="utf-8", errors="surrogateescape", newline="")
        except OSError as cause:
            raise UnusableFile(f"{path}: {cause.strerror}") from cause
        self._rows = csv.writer(self._stream, lineterminator="\n", delimiter=delimiter)
        self._rows.writerows([header, *kept])

    def __enter__(self) -> RejectsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def flush(self) -> None:
        self._stream.flush()

    def write(self, rejection: Rejection) -> None:
        self._rows.writerow((*rejection.cells, rejection.line, rejection.reason))


def free_name(name: str, taken: Collection[str]) -> str:
    """`name`, prefixed until it is not `taken`: a second column of that heading could not be mapped."""
    while name in taken:
        name = f"import_{name}"
    return name


def rows_before(path: Path, header: list[str], delimiter: str, line_done: int) -> list[list[str]]:
    """The rows of lines up to `line_done`; none where there is no file. Raises UnusableFile, OSError."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
        try:
            found = list(csv.reader(stream, delimiter=delimiter))
        except csv.Error as cause:
            raise UnusableFile(f"{path}: not CSV: {cause}") from cause
    if found and found[0] != header:
        raise UnusableFile(f"{path} does not hold the rejected lines of this import: give --rejects another file")
    return [row for row in found[1:] if len(row) > 1 and row[-2].isdecimal() and int(row[-2]) <= line_done]


def advice(path: Path, rejects: Path | None) -> str:
    """What to do after rejected lines: the post ids come from the file's content, so an edited file is a new one."""
    todo = (
        f"correct {rejects} and import that file by itself"
        if rejects
        else "put only the corrected lines, under the same headings, in a new file (--rejects FILE writes it)"
    )
    return f"to add the rejected lines, {todo}; importing {path} again after an edit would count its other lines again"
