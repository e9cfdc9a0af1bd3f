"""Counts who takes part in boards with entry rules: who has joined or posted, and how many posts of each were accepted.

A board has a row that counts its owners, and a row for each of them. Both have the key of the board, even if the board
has segments, and are in its home partition. So a limit holds for all segments together, and a split moves no rows.

    post, join, erasure, voiding, merge    lock the count ──> read rows of owners ──> lock entries ──> … ──> write rows

Whoever reads or writes rows of a board first locks its count, before any entry of the board. So each transaction sees
what all earlier ones have stored, and two posts at the same moment can't exceed a limit. Other boards have no rows and
no locks.

The count is made by the first transaction that needs it. The board may then have entries from before it had rules:
their owners take part, and get rows with their next posts. Without rules, and after a reset, a board has no rows.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import msgspec

from querybuilder import INTEGER, TEXT, Lock, asc, col, count, delete, excluded, insert, param, select, union_all
from storage.records import Leaf
from storage.schema.placement import prepare_put
from storage.schema.tables import ENTRANTS, HIDDEN_ENTRIES, TOTALS
from storage.store import CONTROL, Program

from .catalog_rows import CATALOG_ROWS, RowKind, read_rows
from .totals import ALL_ENTRIES

COUNT = ""  # the name in the row that counts the owners of a board; no owner has it
EntrantsPlace = tuple[int, int]  # the partition and the key of the rows of a board, see `Leaf.entrants_place`


class Entrant(NamedTuple):
    posts: int  # how many posts were accepted
    joined_us: int | None  # None: the owner takes part by posting, and never joined


class Entrants(msgspec.Struct):
    """Those who take part in a board, as far as a transaction asked. It has locked the count."""

    place: EntrantsPlace
    owners: int  # how many owners take part
    rows: dict[str, Entrant] = {}  # of the owners who were asked for and have a row
    removed: set[str] = set()  # by this transaction, which may erase entries of several segments

    def remove(self, gone: Collection[str]) -> Program[None]:
        """Remove owners from the board. Each of them has had a row, or at least an entry."""
        gone = {*gone} - self.removed
        if not gone:
            return
        partition, key = self.place
        yield _DELETE.bind(key=key, owners=[*gone]).at(partition)
        self.removed |= gone
        self.owners -= len(gone)
        yield from store_posts({self.place: {COUNT: self.owners}})

    def remove_joined(self, board_gone: Iterable[str]) -> Program[int]:
        """Remove all owners who were asked for. `board_gone`: whose entry was removed. Return how many had no entry."""
        gone = {*board_gone, *self.rows}
        yield from self.remove(gone)
        return len(gone) - len({*board_gone})

    def return_post(self, owner: str, *, has_entry: bool) -> Program[None]:
        """Take a post of an owner back. An owner who has not joined and has no entry left no longer takes part."""
        row = self.rows.get(owner)
        if not has_entry and (row is None or row.joined_us is None):
            yield from self.remove([owner])
        elif row is not None and row.posts > 0:
            yield from store_posts({self.place: {owner: row.posts - 1}})

    def store_joined(self, owner: str, *, now_us: int) -> Program[None]:
        partition, key = self.place
        yield _PUT.bind(leaf_key=key, owner=owner, posts=0, joined_at=now_us).at(partition)
        yield from store_posts({self.place: {COUNT: self.owners + 1}})

    def merge(self, owner: str, into: str, entries: Collection[str]) -> Program[None]:
        """Give what an owner has to another one. `entries`: which of the two have entries."""
        taking_part = {owner, into} & {*entries, *self.rows}
        if owner not in taking_part:
            return
        rows, (partition, key) = [self.rows[each] for each in (owner, into) if each in self.rows], self.place
        if rows:
            joined_us = min((each.joined_us for each in rows if each.joined_us is not None), default=None)
            posts = sum(each.posts for each in rows)
            yield _DELETE.bind(key=key, owners=[owner]).at(partition)
            yield _PUT.bind(leaf_key=key, owner=into, posts=posts, joined_at=joined_us).at(partition)
        if into in taking_part:
            yield from store_posts({self.place: {COUNT: self.owners - 1}})


def hold_entrants(asked: Iterable[tuple[Leaf, Iterable[str]]]) -> Program[dict[EntrantsPlace, Entrants]]:
    """Lock the counts of the boards of leaves with entry rules, and read the rows of owners. Leave out other leaves."""
    leaves: dict[EntrantsPlace, Leaf] = {}
    wanted: dict[EntrantsPlace, set[str]] = {}
    for leaf, owners in asked:
        if leaf.spec.entry is not None and not leaf.is_unreached:
            leaves[leaf.entrants_place] = leaf
            wanted.setdefault(leaf.entrants_place, set()).update(owners)
    found: dict[EntrantsPlace, Entrants] = {}
    for partition, places in groupby(sorted(wanted), key=itemgetter(0)):
        keys = [key for _, key in places]
        counts = yield from _hold_counts(partition, keys)
        if missing := [key for key in keys if key not in counts]:
            for key in missing:
                entries = yield from _count_entries(leaves[partition, key])
                yield _BEGIN.bind(key=key, owners=entries).at(partition)
            counts = yield from _hold_counts(partition, keys)
        found |= {(partition, key): Entrants((partition, key), counts[key]) for key in keys}
        names = sorted(set[str]().union(*(wanted[partition, key] for key in keys)))
        rows = (yield _ROWS.bind(keys=keys, owners=names).at(partition)) if names else []
        for key, owner, *row in rows:
            found[partition, key].rows[owner] = Entrant(*row)
    return found


def _hold_counts(partition: int, keys: list[int]) -> Program[dict[int, int]]:
    rows = yield _HOLD.bind(keys=keys).at(partition)
    return {int(key): int(owners) for key, owners in rows}


def _count_entries(leaf: Leaf) -> Program[int]:
    leaves = [leaf]
    if leaf.whole is not None:
        rows = yield from read_rows(_SEGMENTS.bind(key=leaf.whole[1]).at(CONTROL))
        leaves = [row.leaf for row in rows]
    entries = 0
    for each in leaves:
        entries += sum([int(row[0]) for row in (yield _ENTRIES.bind(key=each.key).at(each.partition))])
    return entries


def count_owners(leaves: Iterable[Leaf]) -> Program[dict[EntrantsPlace, int]]:
    """Count the owners who take part in the boards of these leaves with entry rules, by their place."""
    known = {leaf.entrants_place: leaf for leaf in leaves if leaf.spec.entry is not None and not leaf.is_unreached}
    found: dict[EntrantsPlace, int] = {}
    for partition, places in groupby(sorted(known), key=itemgetter(0)):
        rows = yield _COUNTS.bind(keys=[key for _, key in places]).at(partition)
        found |= {(partition, key): owners for key, owners in rows}
    for place in known.keys() - found.keys():
        found[place] = yield from _count_entries(known[place])
    return found


def find_joined(leaf: Leaf, owners: Collection[str]) -> Program[dict[str, int]]:
    """Find when owners have joined the board of a leaf, by owner. Leave out those who never joined."""
    if leaf.spec.entry is None or leaf.is_unreached or not owners:
        return {}
    partition, key = leaf.entrants_place
    rows = yield _ROWS.bind(keys=[key], owners=[*owners]).at(partition)
    return {owner: joined_us for _, owner, _, joined_us in rows if joined_us is not None}


def list_keys(owner: str) -> Program[list[int]]:
    """List the keys of boards of this partition in which an owner takes part and has a row."""
    return [key for (key,) in (yield _OF_OWNER.bind(owner=owner))]


def store_posts(posts: Mapping[EntrantsPlace, Mapping[str, int]]) -> Program[None]:
    """Store numbers of accepted posts by place and owner, and numbers of owners under the name `COUNT`."""
    for partition, places in groupby(sorted(posts), key=itemgetter(0)):
        rows = [(key, owner, number) for _, key in places for owner, number in posts[partition, key].items()]
        yield _STORE.bind(rows=sorted(rows)).at(partition)


def recount_owners(leaf: Leaf, owners: set[str]) -> Program[None]:
    """Recount the owners of a board whose entries were recomputed. `owners`: all that have an entry now."""
    for place in (yield from hold_entrants([(leaf, ())])):
        partition, key = place
        rows = yield _OWNERS.bind(key=key).at(partition)
        yield from store_posts({place: {COUNT: len(owners.union(owner for (owner,) in rows))}})


def forget_entrants(places: Iterable[EntrantsPlace], *, counts: bool = True) -> Program[None]:
    """Remove the rows of boards. Call this before their entries are locked. `counts`: also remove the counts."""
    for partition, theirs in groupby(sorted(places), key=itemgetter(0)):
        yield (_FORGET if counts else _FORGET_OWNERS).bind(keys=[key for _, key in theirs]).at(partition)


_columns = {"leaf_key": INTEGER, "owner": TEXT, "posts": INTEGER}
_key, _owner = col("leaf_key"), col("owner")
_among, _is_count = _key.in_(param("keys")), _owner.eq(COUNT)
_counts = select(_key, col("posts")).from_(ENTRANTS).where(_among, _is_count).packed()
_COUNTS = _counts.prepared()
_HOLD = _counts.locked(Lock.NO_KEY_UPDATE, asc(_key)).prepared()
_begun = insert(ENTRANTS).values(leaf_key=param("key"), owner=COUNT, posts=param("owners"))
_BEGIN = _begun.on_conflict("leaf_key", "owner").do_nothing().prepared()
_rows = select(_key, _owner, col("posts"), col("joined_at")).from_(ENTRANTS)
_ROWS = _rows.where(_among, _owner.in_(param("owners"))).packed().prepared()
_OF_OWNER = select(_key).from_(ENTRANTS).where(_owner.eq(param("owner"))).packed().prepared()
_OWNERS = select(_owner).from_(ENTRANTS).where(_key.eq(param("key")), _owner.gt(COUNT)).packed().prepared()
_put_rows = insert(ENTRANTS).rows(param("rows"), **_columns).on_conflict("leaf_key", "owner")
_STORE = _put_rows.do_update(posts=excluded("posts")).prepared()
_PUT = prepare_put(ENTRANTS)
_DELETE = delete(ENTRANTS).where(_key.eq(param("key")), _owner.in_(param("owners"))).prepared()
_FORGET = delete(ENTRANTS).where(_among).prepared()
_FORGET_OWNERS = delete(ENTRANTS).where(_among, _owner.gt(COUNT)).prepared()
_ENTRIES = (
    union_all(
        select(col("entries")).from_(TOTALS).where(_key.eq(param("key")), col("column_index").eq(ALL_ENTRIES)),
        select(count()).from_(HIDDEN_ENTRIES).where(_key.eq(param("key"))),
    )
    .packed()
    .prepared()
)
_SEGMENTS = CATALOG_ROWS.where(col("segment_of").eq(param("key")), col("kind").eq(RowKind.SEGMENT)).prepared()
