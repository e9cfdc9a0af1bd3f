"""Turns the lines of a CSV file into posts to a board or a family.

Imports get interrupted and repeated. To count each line once all the same, the id of a post is made of the file's
content, the mapping of columns and the line number, so a second run sends the same ids and the service answers
`duplicate`.

For a family, facets are first read as columns of text, and then moved to the `facets` of a post.
"""

import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rankcurve import AsyncClient
from rankcurve.answers import Board

from service.commands.imports.sending import Record, owner_fault, round_decimal
from service.commands.target import fail


def read_lines(
    path: Path,
    board: Board,
    mapping: Sequence[str],
    owner_and_time: tuple[str, str | None],
    *,
    delimiter: str,
    rounds: bool,
) -> Iterator[Record]:
    """Yield a record for each line after the headings. End the command if file, mapping and board do not fit together.

    The text `xp=score` in `mapping` means that the cells under the heading `score` are posted to the column `xp`.
    `owner_and_time` has the headings of the owners and, unless None, of the times. An empty cell names no time.
    """
    owner_heading, at_heading = owner_and_time
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    rows = read_rows(path, delimiter)
    _, first = next(rows, (0, []))
    if not first or isinstance(first, str):
        fail(f"{path}: {first or 'the file is empty'}; the first line must hold the headings")
    headings = [heading.strip() for heading in first]
    fields = map_fields(path, board, mapping, [owner_heading, *([at_heading] if at_heading else [])], headings)
    # The mapping is part of the post ids, because the service refuses a known id if it comes with other stats.
    parts = [digest, owner_heading, *sorted(f"{column}={heading}" for column, heading in fields.items())]
    parts += [f"at {at_heading}"] if at_heading else []
    identity = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    scales = {each.name: each.scale for each in board.columns if each.type != "text"}
    reader = _LineReader(headings, fields, owner_heading, at_heading, f"import:{identity}", scales, rounds)
    for line, row in rows:
        yield Record(f"line {line}", row if isinstance(row, str) else reader.read_post(line, row))


class _LineReader(NamedTuple):
    headings: Sequence[str]
    fields: Mapping[str, str]  # by column, the heading of its cells
    owner_heading: str
    at_heading: str | None
    identity: str
    scales: Mapping[str, int]  # of the columns of numbers
    rounds: bool

    def read_post(self, line: int, row: list[str]) -> dict[str, object] | str:
        if len(row) != len(self.headings):
            return f"{len(row)} cells, but {len(self.headings)} headings"
        cells = dict(zip(self.headings, row, strict=True))
        # An empty cell means that the post has no value for this column.
        given = {column: self._read_cell(column, cells[heading]) for column, heading in self.fields.items()}
        stats = {column: cell for column, cell in given.items() if cell}
        owner = cells[self.owner_heading]
        post: dict[str, object] = {"owner": owner, "stats": stats, "post_id": f"{self.identity}:{line}"}
        if self.at_heading and (at := cells[self.at_heading].strip()):
            post["at"] = at
        return owner_fault(owner) or stats_fault(stats) or post

    def _read_cell(self, column: str, cell: str) -> str:
        if column not in self.scales:
            return cell
        return round_decimal(cell.strip(), self.scales[column]) if self.rounds else cell.strip()


def read_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str] | str]]:
    """Yield, for each record of the file, the number of its first line and a list of its cells. Skip blank lines.

    If a record is not CSV, a text with the reason replaces the list. Bytes that are not UTF-8 become lone surrogates.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        rows = csv.reader(stream, delimiter=delimiter)
        while True:
            line = rows.line_num + 1
            try:
                row: list[str] | str = next(rows)
            except StopIteration:
                return
            except csv.Error as cause:
                row = f"not CSV: {cause}"
            if row:
                yield line, row


def map_fields(
    path: Path, board: Board, mapping: Sequence[str], others: Sequence[str], headings: list[str]
) -> dict[str, str]:
    """Return the heading for each column to post. End the command if the file, `mapping` and the board do not match.

    `others`: the headings of the owner and, if there is one, of the time.
    """
    columns = [each.name for each in board.columns if each.merge != "quotient"]
    shared = [name for name in columns if name in headings and name not in others]
    fields: dict[str, str] = {}
    for name, _, heading in (text.partition("=") for text in mapping or shared):
        if name not in columns:
            what = "computes" if name in [each.name for each in board.columns] else "has no"
            fail(f"the leaderboard {what} column {name!r}; it has {', '.join(columns)}")
        if name in fields:
            fail(f"column {name} is mapped twice")
        fields[name] = heading or name
    if not fields:
        fail(f"no heading is a column of the leaderboard ({', '.join(columns)}): map them with --column COLUMN=HEADING")
    for heading in (*others, *fields.values()):
        if headings.count(heading) != 1:
            what = "no" if heading not in headings else "more than one"
            fail(f"{path} has {what} heading {heading!r}; it has {', '.join(headings)}")
    return fields


def stats_fault(stats: dict[str, str]) -> str | None:
    """Say why the stats of a line cannot be posted; return None if they can."""
    if not stats:
        return "no value in any of the mapped columns"
    for name, text in stats.items():
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            return f"{name}: not UTF-8"
    return None


async def read_family(client: AsyncClient, family: str) -> tuple[Board, dict[str, bool]]:
    """Read a board with the columns of a family and a column of text for each facet.

    Also return the names of the facets, each with whether the family has a column of this name, too.
    """
    found = await client.family(family)
    names = {column["name"] for column in found["columns"]}
    facets = {name: name in names for listed in found.get("facets", ()) for name in listed}
    columns = [{"name": name, "merge": "last", "type": "text"} for name in sorted(facets) if not facets[name]]
    return msgspec.convert({"columns": [*found["columns"], *columns]}, Board), facets


def split_facets(lines: Iterable[Record], facets: Mapping[str, bool]) -> Iterator[Record]:
    """Yield the records with the values of facets, see `read_family`, moved from the stats of posts to their facets."""
    for line in lines:
        post = line.post
        if facets and not isinstance(post, str):
            given: Any = post["stats"]
            post["facets"] = {name: given[name].strip() for name in facets if name in given}
            post["stats"] = stats = {name: text for name, text in given.items() if facets.get(name, True)}
            if not stats:
                line = Record(line.name, "no value in any of the mapped columns")
        yield line
