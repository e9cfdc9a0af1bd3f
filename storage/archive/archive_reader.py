"""Reads archived boards: `ArchivedEntries` reads entries by owner, and `ArchivedRanking` reads rankings.

Ranks and totals are those from the moment when the board was archived. If an owner is erased or hidden afterwards, the
owner's entry still counts, so that nobody else's rank changes, but reads that return rows leave it out.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from predictor import Curve, decode_curve
from querybuilder import INTEGER, Lock, asc, col, desc, param, select, update
from storage.errors import ArchivedError
from storage.leaves.entries import add_totals
from storage.leaves.exact_ranks import CountStart, GapCount, count_of
from storage.leaves.hidden_owners import TOLD, find_hidden_owners
from storage.leaves.rankings import Neighbours, OpenLeaf, Ranking
from storage.leaves.totals import CHANGES
from storage.log.cells import Padding
from storage.records import INT64_MAX, Entry, Leaf
from storage.schema.tables import ARCHIVE_BLOCKS
from storage.store import Program, Rows

from .blocks import OWNERS, SectionKind, TallyBlock, decode_rows, decode_tally, encode_rows, section_of

NOBODY = ""  # the owner in a row whose real owner was erased

_TEXT, _NUMBER = param("text"), param("number", INTEGER)
_SECTION = col("leaf_key").eq(param("leaf_key")), col("section").eq(param("section"))
_BLOCKS = select(col("number"), col("document")).from_(ARCHIVE_BLOCKS).where(*_SECTION)
_up_to = _BLOCKS.where(col("first").le(_TEXT)).order_by(desc(col("first"))).limit(1)
_FIRST_UP_TO, _HELD_UP_TO = _up_to.prepared(), _up_to.locked(Lock.UPDATE).prepared()
_FIRST_FROM = _BLOCKS.where(col("first").ge(_TEXT)).order_by(asc(col("first"))).limit(1).prepared()
_AT_NUMBER = _BLOCKS.where(col("number").le(_NUMBER)).order_by(desc(col("number"))).limit(1).prepared()
_BEFORE_NUMBER = _BLOCKS.where(col("number").lt(_NUMBER)).order_by(asc(col("number"))).prepared()
_NUMBERED = _BLOCKS.where(col("number").in_(param("numbers"))).prepared()
_HELD = _BLOCKS.locked(Lock.UPDATE, asc(col("number"))).prepared()
_FIRSTS = select(col("number"), col("first")).from_(ARCHIVE_BLOCKS).where(*_SECTION)
_DIRECTORY = _FIRSTS.order_by(asc(col("first"))).prepared()
_ENDS = select(col("number"), col("entries"), col("last")).from_(ARCHIVE_BLOCKS).where(*_SECTION)
_OWNERS_PAST = select(col("last"), col("document")).from_(ARCHIVE_BLOCKS).where(*_SECTION, col("last").gt(_TEXT))
_NEXT_OWNERS = _OWNERS_PAST.order_by(asc(col("number"))).limit(1).prepared()
_LAST = _ENDS.order_by(desc(col("number"))).limit(1).prepared()
_changed = update(ARCHIVE_BLOCKS).where(*_SECTION, col("number").eq(_NUMBER)).set(document=param("document"))
_CHANGE, _CUT = _changed.prepared(), _changed.set(first=param("first"), last=param("last")).prepared()


def find_last_block(leaf_key: int, section: str) -> Program[tuple[int, int, str] | None]:
    """Find `number`, `entries` and `last` of a section's last `ArchiveBlock`, or return None if it has no blocks."""
    rows = yield _LAST.bind(leaf_key=leaf_key, section=section)
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


class ArchivedRanking(Ranking):
    def __init__(self, leaf: Leaf, index: int) -> None:
        self.index, self.padding = index, Padding(leaf.spec, leaf.spec.columns[index])
        self.timed, self.leaf_key = self.padding.timed, leaf.key
        self._closed_us, self._columns = leaf.closed_us, len(leaf.spec.columns)

    def _tally_of(self, text: str) -> Program[tuple[int, TallyBlock] | None]:
        """Find the only tally block that can hold a cell, and the number of entries in the blocks before it.

        It is the last block that begins with this cell or a better one. Return None if all begin with a worse cell.
        """
        statement = _FIRST_FROM if self.padding.high else _FIRST_UP_TO
        return _decode_tally((yield statement.bind(**self._in(SectionKind.TALLY), text=text)))

    def _tally_at(self, number: int) -> Program[tuple[int, TallyBlock] | None]:
        return _decode_tally((yield _AT_NUMBER.bind(**self._in(SectionKind.TALLY), number=number)))

    def _in(self, kind: SectionKind) -> dict[str, int | str]:
        return {"leaf_key": self.leaf_key, "section": section_of(kind, self.index)}

    def _count(self, kind: SectionKind) -> Program[int]:
        last = yield from find_last_block(self.leaf_key, section_of(kind, self.index))
        return 0 if last is None else last[0] + last[1]

    def _total(self) -> Program[int]:
        return self._count(SectionKind.TALLY)

    def keeps_all_rows(self) -> Program[bool]:
        return (yield from self._count(SectionKind.TOP)) == (yield from self._total())

    def _top(self, rows_max: int = INT64_MAX, shadow: str = NOBODY) -> Program[list[Entry]]:
        """Read all archived best rows, or at least the first `rows_max`, without those of erased or hidden owners.

        The row of `shadow` is kept, unless answers disclose that this owner is hidden.
        """
        blocks = yield _BEFORE_NUMBER.bind(**self._in(SectionKind.TOP), number=rows_max)
        kept = [entry for _, document in blocks for entry in _widened(document, self._columns)]
        hidden = yield from find_hidden_owners([entry.owner for entry in kept])
        unseen = {NOBODY, *(owner for owner, state in hidden.items() if owner != shadow or state in TOLD)}
        shown = [entry for entry in kept if entry.owner not in unseen]
        if len(shown) < rows_max <= len(kept):  # too many of the rows belong to unseen owners: read all blocks
            return (yield from self._top(shadow=shadow))
        return shown

    def count_better(self, cell: str) -> Program[int]:
        found = yield from self._tally_of(cell)
        return 0 if found is None else found[0] + found[1].count_better_than(self.padding.key_of_cell(cell))

    def count_from_top(self, cell: str, rows_max: int | None, asked_us: int) -> Program[GapCount]:
        better_count = yield from self.count_better(cell)
        better_count = better_count if rows_max is None else min(rows_max, better_count)
        return count_of(better_count, self._closed_us or asked_us, changed_us=0)

    def count_from_anchor(self, start: CountStart, cell: str, *, owner: str = "") -> Program[GapCount | None]:
        yield from ()
        return None

    def count_range(self, *, least: str, past: str) -> Program[int]:
        return (yield from self._less_than(past)) - (yield from self._less_than(least))

    def _less_than(self, text: str) -> Program[int]:
        """Count the entries whose cell sorts before `text`, which may be the first digits of a cell."""
        # The text ":" means a limit after all cells. Shorter texts get zeros, because `count_better` needs all digits.
        width = len(self.padding.pad(self.padding.min_scaled))
        if text > "9" * width:
            return (yield from self._total())
        cell = text.ljust(width, "0")
        better = yield from self.count_better(cell)
        if not self.padding.high:
            return better
        ties, _ = yield from self.count_tied(cell)
        return (yield from self._total()) - better - ties

    def count_tied(self, cell: str, owner: str = "") -> Program[tuple[int, int]]:
        """Count the entries with this cell, and how many of them come before `owner`.

        If equal values share a rank, the order of tied entries is archived only for the best rows (`SectionKind.TOP`).
        """
        found = yield from self._tally_of(cell)
        ties = 0 if found is None else found[1].count_tied_with(self.padding.key_of_cell(cell))
        if not ties or not owner:
            return ties, 0
        if self.timed and (before := (yield from self._find_ties_before(owner))) is not None:
            return ties, before
        tied = [entry.owner for entry in (yield from self._top()) if entry.cells[self.index] == cell]
        if owner in tied:
            return ties, tied.index(owner)
        return ties, next((index for index, name in enumerate(tied) if name > owner), len(tied))

    def _find_ties_before(self, owner: str) -> Program[int | None]:
        found = yield _FIRST_UP_TO.bind(leaf_key=self.leaf_key, section=OWNERS, text=owner)
        for _, document in found:
            rows = decode_rows(document)
            owners = [entry.owner for entry in rows.entries]
            if owner in owners and self.index in rows.ties_before:
                return rows.ties_before[self.index][owners.index(owner)]
        return None

    def find_row(self, start: CountStart | None, rank: int) -> Program[tuple[str, str] | None]:
        top = yield from self._top(rank)
        if len(top) < rank:
            yield from self._check_end()
            return None
        return str(top[rank - 1].cells[self.index]), top[rank - 1].owner

    def find_cell(self, start: CountStart | None, rank: int) -> Program[str | None]:
        if rank > (yield from self._total()):
            return None
        found = yield from self._tally_at(rank - 1)
        assert found is not None, "the first block begins with the first entry"
        return self.padding.cell_of_key(found[1].key_at(rank - 1 - found[0]))

    def find_worst_cell(self) -> Program[str | None]:
        total = yield from self._total()
        return (yield from self.find_cell(None, total)) if total else None

    def find_next_better(self, cell: str, owner: str) -> Program[tuple[str, str] | None]:
        if self.timed and owner and (yield from self.count_tied(cell, owner))[1]:
            return cell, ""
        key = self.padding.key_of_cell(cell)
        found = yield from self._tally_of(cell)
        better = None if found is None else found[1].next_better_key(key)
        if better is None and found is not None and found[0]:
            previous = yield from self._tally_at(found[0] - 1)
            better = None if previous is None else previous[1].keys[-1]
        return None if better is None else (self.padding.cell_of_key(better), "")

    def read_first_rows(self, limit: int) -> Program[list[Entry]]:
        top = yield from self._top(limit)
        if not top:
            yield from self._check_end()
        return top[:limit]

    def read_rows_after(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        top, start = yield from self._find_index(cell, owner)
        start += start < len(top) and self._is_at(top[start], cell, owner)
        if start == len(top):
            yield from self._check_end()
        return top[start : start + limit]

    def read_rows_before(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        top, start = yield from self._find_index(cell, owner)
        return top[max(0, start - limit) : start]

    def read_rows_around(self, cell: str, owner: str, *, better_rows: int, worse_rows: int) -> Program[Neighbours]:
        top, start = yield from self._find_index(cell, owner, shadow=owner)
        if start == len(top) and worse_rows:
            yield from self._check_end()
        first = max(0, start - better_rows)
        cells = [entry.cells[self.index] for entry in top]
        near = Neighbours(top[first:start], top[start : start + worse_rows], cells[:start].count(cell))
        if start - first >= 2 and cells[first] == cells[first + 1]:
            near.edge_ties = cells[:first].count(cells[first])
        near.shown_before = start
        return near

    def _find_index(self, cell: str, owner: str, shadow: str = NOBODY) -> Program[tuple[list[Entry], int]]:
        """Return the rows from `_top`, and the 0-based index of the row with this cell and owner.

        If no row has this cell and owner, the index is that of the first row that ranks after them.
        """
        top, key = (yield from self._top(shadow=shadow)), self.padding.key_of_cell(cell)
        for index, entry in enumerate(top):
            if self._is_at(entry, cell, owner):
                return top, index
        return top, sum(self.order_of(entry) < (key, owner) for entry in top)

    def _is_at(self, entry: Entry, cell: str, owner: str) -> bool:
        return entry.owner == owner and entry.cells[self.index] == cell

    def _check_end(self) -> Program[None]:
        kept = yield from self._count(SectionKind.TOP)
        if kept < (yield from self._total()):
            raise ArchivedError(f"the leaderboard was archived with its first {kept} rows by this column")


class ArchivedEntries(OpenLeaf):
    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf

    @cached_property
    def rankings(self) -> Mapping[int, Ranking]:
        return {index: ArchivedRanking(self.leaf, index) for index in self.leaf.sorted_indexes}

    def read_curves(self, column_index: int) -> Program[list[Curve]]:
        """Read the board's final curve, or one for each segment that it had. The list is empty if none was stored."""
        section = section_of(SectionKind.CURVE, column_index)
        rows = yield _BEFORE_NUMBER.bind(leaf_key=self.leaf.key, section=section, number=INT64_MAX)
        return [decode_curve(document) for _, document in rows]

    def find_entries(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        return (yield from self._find_kept(owners, hidden=False))

    def read_by_owner(self, after: str, limit: int) -> Program[list[Entry]]:
        found: list[Entry] = []
        past = after
        while len(found) < limit:
            rows = yield _NEXT_OWNERS.bind(leaf_key=self.leaf.key, section=OWNERS, text=past)
            if not rows:
                break
            past, document = rows[0]
            kept = [entry for entry in _widened(document, len(self.leaf.spec.columns)) if entry.owner > after]
            unseen = yield from find_hidden_owners([entry.owner for entry in kept])
            found += [entry for entry in kept if entry.owner not in unseen]
        return found[:limit]

    def of_hidden(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        return (yield from self._find_kept(owners, hidden=True))

    def _find_kept(self, owners: Sequence[str], *, hidden: bool) -> Program[dict[str, Entry]]:
        states = yield from find_hidden_owners(owners)
        owners = [owner for owner in owners if (states.get(owner, "") in TOLD) is hidden]
        if not owners:
            return {}
        columns = len(self.leaf.spec.columns)
        rows = yield from self._read_blocks_of(owners)
        entries = {entry.owner: entry for _, document in rows for entry in _widened(document, columns)}
        return {owner: entries[owner] for owner in owners if owner in entries}

    def _read_blocks_of(self, owners: Sequence[str]) -> Program[Rows]:
        named = {"leaf_key": self.leaf.key, "section": OWNERS}
        if len(owners) == 1:
            return (yield _FIRST_UP_TO.bind(**named, text=owners[0]))
        directory = yield _DIRECTORY.bind(**named)
        firsts = [first for _, first in directory]
        covering = {after - 1 for owner in owners if (after := bisect_right(firsts, owner))}
        return (yield _NUMBERED.bind(**named, numbers=sorted(directory[index][0] for index in covering)))

    def erase_entry(self, owner: str) -> Program[bool]:
        """Erase an owner from the archive, and return whether the archive had the owner.

        All other owners keep their ranks, and nothing is written to the change log.
        """
        key = self.leaf.key
        held = yield _HELD_UP_TO.bind(leaf_key=key, section=OWNERS, text=owner)
        if not held:
            return False
        [[number, document]] = held
        rows = decode_rows(document)
        owners = [entry.owner for entry in rows.entries]
        if owner not in owners:
            return False
        gone = owners.index(owner)
        del rows.entries[gone]
        for ties in rows.ties_before.values():
            del ties[gone]
        left = owners[:gone] + owners[gone + 1 :] or [
            NOBODY
        ]  # no search finds a block that begins and ends with nobody
        bounds = {"first": left[0], "last": left[-1], "document": encode_rows(rows)}
        yield _CUT.bind(leaf_key=key, section=OWNERS, number=number, **bounds)
        for index in self.leaf.sorted_indexes:
            yield from self._blank_row(index, owner)
        yield from note_change([self.leaf])
        return True

    def _blank_row(self, index: int, owner: str) -> Program[None]:
        """Replace the owner in a row among a column's archived best rows with `NOBODY`."""
        key, section = self.leaf.key, section_of(SectionKind.TOP, index)
        for number, document in (yield _HELD.bind(leaf_key=key, section=section)):
            rows = decode_rows(document)
            left = [_nobodys(entry, index) if entry.owner == owner else entry for entry in rows.entries]
            if left != rows.entries:
                changed = encode_rows(rows._replace(entries=left))
                yield _CHANGE.bind(leaf_key=key, section=section, number=number, document=changed)


def note_change(leaves: Iterable[Leaf]) -> Program[None]:
    """Count an erased, hidden or shown owner as a change to each leaf, so that ETags change. Call this last."""
    yield from add_totals({leaf.key: {CHANGES: 1} for leaf in leaves})


def _nobodys(entry: Entry, index: int) -> Entry:
    return Entry(NOBODY, 0, [cell if at == index else None for at, cell in enumerate(entry.cells)])


def list_archives_of_owner(owner: str, *, after_key: int, limit: int) -> Program[list[int]]:
    """List up to `limit` keys, greater than `after_key`, of boards whose archives may hold an owner."""
    covering = (col("section").eq(OWNERS), col("first").le(param("owner")), col("last").ge(param("owner")))
    found = select(col("leaf_key")).from_(ARCHIVE_BLOCKS).where(col("leaf_key").gt(param("after_key")), *covering)
    rows = yield found.order_by(asc(col("leaf_key"))).limit(limit).bind(owner=owner, after_key=after_key)
    return [row[0] for row in rows]


def _decode_tally(found: Rows) -> tuple[int, TallyBlock] | None:
    return (found[0][0], decode_tally(found[0][1])) if found else None


def _widened(document: bytes, columns: int) -> list[Entry]:
    """Decode the rows of a block. A column that was added after the board was archived has the value None."""
    entries = decode_rows(document).entries
    for entry in entries:
        entry.cells.extend([None] * (columns - len(entry.cells)))
    return entries
