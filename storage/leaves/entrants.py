"""Counts the owners who take part in boards with entry rules by joining or posting, and the accepted posts of each.

Each board has a row that counts its owners, and a row for each owner. Both carry the board's key, even if the board has
segments, and are in its home partition. So a limit holds for all segments together, and a split moves no rows.

    post, join, erasure, voiding, merge    lock the count ──> read rows of owners ──> lock entries ──> … ──> write rows

A transaction that reads or writes these rows first locks the board's count, before any of the board's entries. So it
sees everything that earlier transactions stored, and two simultaneous posts cannot exceed a limit. Boards without entry
rules have no such rows and no such locks.

The first transaction that needs the count creates it. The board may then already have entries from before it had rules.
The owners of these entries take part, and get their rows with their next posts. A board has no rows while it has no
rules, and after a reset.
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
    """Those who take part in a board, as far as a transaction asked for them after locking the board's count."""

    place: EntrantsPlace
    owners: int  # how many owners take part
    rows: dict[str, Entrant] = {}  # of the owners who were asked for and have a row
    removed: set[str] = set()  # by this transaction, which may erase entries of several segments

    def remove(self, gone: Collection[str]) -> Program[None]:
        """Remove owners from the board, each of whom has had a row or at least an entry."""
        gone = {*gone} - self.removed
        if not gone:
            return
        partition, key = self.place
        yield _DELETE.bind(key=key, owners=[*gone]).at(partition)
        self.removed |= gone
        self.owners -= len(gone)
        yield from store_posts({self.place: {COUNT: self.owners}})

    def remove_joined(self, board_gone: Iterable[str]) -> Program[int]:
        """Remove all owners that were asked for. Return how many of them had no entry.

        `board_gone`: the owners whose entry was removed.
        """
        gone = {*board_gone, *self.rows}
        yield from self.remove(gone)
        return len(gone) - len({*board_gone})

    def return_post(self, owner: str, *, has_entry: bool) -> Program[None]:
        """Subtract an owner's voided post. An owner who has no entry left and has not joined stops taking part."""
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
        """Transfer an owner's posts and joining time to another owner. `entries`: which of the two have entries."""
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
    """Lock the owner counts of boards with entry rules, and read the owners' rows. Skip leaves of other boards."""
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
    """Count the owners who take part in the boards of these leaves, by place. Skip boards without entry rules."""
    known = {leaf.entrants_place: leaf for leaf in leaves if leaf.spec.entry is not None and not leaf.is_unreached}
    found: dict[EntrantsPlace, int] = {}
    for partition, places in groupby(sorted(known), key=itemgetter(0)):
        rows = yield _COUNTS.bind(keys=[key for _, key in places]).at(partition)
        found |= {(partition, key): owners for key, owners in rows}
    for place in known.keys() - found.keys():
        found[place] = yield from _count_entries(known[place])
    return found


def find_joined(leaf: Leaf, owners: Collection[str]) -> Program[dict[str, int]]:
    """Find when owners joined the board of a leaf, by owner. Leave out those who never joined."""
    if leaf.spec.entry is None or leaf.is_unreached or not owners:
        return {}
    partition, key = leaf.entrants_place
    rows = yield _ROWS.bind(keys=[key], owners=[*owners]).at(partition)
    return {owner: joined_us for _, owner, _, joined_us in rows if joined_us is not None}


def list_keys(owner: str) -> Program[list[int]]:
    """List the keys of the boards in this partition for which an owner has a row."""
    return [key for (key,) in (yield _OF_OWNER.bind(owner=owner))]


def store_posts(posts: Mapping[EntrantsPlace, Mapping[str, int]]) -> Program[None]:
    """Store counts of accepted posts, by place and owner, and counts of owners under the name `COUNT`."""
    for partition, places in groupby(sorted(posts), key=itemgetter(0)):
        rows = [(key, owner, number) for _, key in places for owner, number in posts[partition, key].items()]
        yield _STORE.bind(rows=sorted(rows)).at(partition)


def recount_owners(leaf: Leaf, owners: set[str]) -> Program[None]:
    """Recount the owners of a board whose entries were recomputed. `owners`: everyone who now has an entry."""
    for place in (yield from hold_entrants([(leaf, ())])):
        partition, key = place
        rows = yield _OWNERS.bind(key=key).at(partition)
        yield from store_posts({place: {COUNT: len(owners.union(owner for (owner,) in rows))}})


def forget_entrants(places: Iterable[EntrantsPlace], *, counts: bool = True) -> Program[None]:
    """Remove boards' rows, and with `counts` their counts, too. Call this before their entries are locked."""
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
