"""What both sources of an import share: records that become posts, the checks of their cells, and the rejects.

A record that cannot be a post is rejected with a reason, and the import goes on. Rejected records go to a file that can
be corrected and imported, and the reasons beside it. That file begins with the headings of the source, and each record
is copied byte for byte.
"""

import contextlib
import csv
import io
import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from pathlib import Path

from service.contract.problems import ProblemError
from service.contract.values import DECIMAL_PATTERN, OWNER_CHARS_MAX, parse_owner

DECIMAL = re.compile(DECIMAL_PATTERN[1:-1])
EXACTLY = Context(prec=64, rounding=ROUND_HALF_UP)
REASONS_HEADINGS = ("line", "rejects_line", "reason")

Post = dict[str, object]
Outcome = tuple[Post, int] | str  # a post with its number of rounded values, or the reason why a record is no post


class UnusableSourceError(Exception):
    """The file, or the sorted set, cannot be imported."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a source. `line` is 1-based, as in editors. `raw` holds its bytes in CSV, unchanged."""

    line: int
    raw: bytes
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Batch:
    """Neighbouring records, which are sent in one request. `done` is how much of the source was read with them."""

    records: list[Record]
    done: int

    def posts(self) -> list[Post]:
        return [each.outcome[0] for each in self.records if not isinstance(each.outcome, str)]


def rounded_text(cell: str, scale: int) -> str | None:
    """Return the decimal rounded to `scale` digits, halves away from zero, or None if it needs no rounding."""
    if not DECIMAL.fullmatch(cell):
        return None  # the service will reject it
    try:
        nearest = Decimal(cell).quantize(Decimal(1).scaleb(-scale), context=EXACTLY)
    except InvalidOperation:
        return None  # far more digits than any column takes
    return None if nearest == Decimal(cell) else f"{nearest if nearest else abs(nearest):f}"


def owner_fault(owner: str) -> str | None:
    """Return why `owner` cannot be an owner, or None. The service would refuse all posts of a request for it."""
    try:
        parse_owner(owner)
    except ProblemError:
        return f"an owner is 1 to {OWNER_CHARS_MAX} characters of UTF-8, and none of them is a control character"
    return None


def text_fault(text: str) -> str | None:
    """Return why `text` cannot be sent as JSON, or None. Surrogates stand for bytes that are not valid UTF-8."""
    if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
        return None
    return "not UTF-8"


def csv_record(*cells: object, errors: str = "surrogateescape") -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", errors)


def reasons_path(rejects: Path) -> Path:
    return rejects.with_name(f"{rejects.name}.reasons")


class RejectsFile:
    """Writes rejected records to `path`, after the `heading` line, and their reasons beside it.

    Use it as a context manager. Raises UnusableSourceError if a file would overwrite the imported one, and OSError if a
    file cannot be opened.
    """

    def __init__(self, path: Path, heading: bytes, imported: Path | None) -> None:
        for written in (path, reasons_path(path)):
            if imported is not None and written.exists() and written.samefile(imported):
                raise UnusableSourceError(f"{written} is both the file to import and one to write; give another file")
        self._lines = 0
        with contextlib.ExitStack() as stack:
            self._records = stack.enter_context(path.open("wb"))
            self._reasons = stack.enter_context(reasons_path(path).open("wb"))
            self._files = stack.pop_all()
        self._append(heading)
        self._reasons.write(csv_record(*REASONS_HEADINGS))

    def __enter__(self) -> "RejectsFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def write_rejection(self, record: Record, reason: str) -> None:
        self._reasons.write(csv_record(record.line, self._lines + 1, reason, errors="backslashreplace"))
        self._append(record.raw)

    def _append(self, raw: bytes) -> None:
        if not raw.endswith(b"\n"):
            raw += b"\n"  # the last line of a file may lack its line end
        self._records.write(raw)
        self._lines += raw.count(b"\n")
