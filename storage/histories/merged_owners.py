"""Remembers which of a person's owner ids were merged into another one, and on which boards.

    owner ── merged into ──> other owner        the first id is an earlier id of the other owner from then on

An earlier id no longer has entries, but the journal keeps its posts under that id. Code that reads an owner's posts
therefore reads those of the earlier ids as well. If the owner is merged in turn, they become earlier ids of the new
owner.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from querybuilder import Lock, any_of, asc, col, delete, param, select, update
from storage.errors import MergeConflictError, OwnerMergedError
from storage.log.bundles import ChangeKind
from storage.schema.placement import prepare_put
from storage.schema.tables import MERGED_ENTRIES, MERGED_OWNERS
from storage.store import Program

EARLIER_IDS_MAX = 100  # of an owner, because every read of the owner's posts searches the journal for each of them


class MergedEntry(NamedTuple):
    owner: str
    leaf_key: int  # the leaf that got the entry
    into_owner: str  # who got it, even if that owner was merged later
    kind: ChangeKind  # one of `bundles.MERGES`
    stats: str  # the values that the merge made, as a JSON array in column order


def find_into(owner: str, *, held: bool = False) -> Program[str | None]:
    """Find into whom an owner was merged, if at all. With `held`, this can't change until the transaction ends."""
    rows = yield (_HELD if held else _FIND).bind(owner=owner)
    return str(rows[0][0]) if rows else None


def check_not_merged(owner: str) -> Program[None]:
    yield from list_names(owner)


def list_earlier_ids(owner: str) -> Program[list[str]]:
    return [each for each, into in (yield _NAMES.bind(owner=owner)) if into == owner]


def list_names(owner: str) -> Program[list[str]]:
    """List the owner and all of the owner's earlier ids.

    Raises:
        OwnerMergedError: this is an earlier id.
    """
    earlier_ids = []
    for each, into in (yield _NAMES.bind(owner=owner)):
        if each == owner:
            error = OwnerMergedError(f"{owner!r} was merged into {into!r}")
            error.into = into
            raise error
        earlier_ids.append(each)
    return [owner, *earlier_ids]


def store_merged(owner: str, into: str, *, now_us: int) -> Program[None]:
    """Record an owner, and all of its earlier ids, as earlier ids of `into`.

    Raises:
        MergeConflictError: `into` would have too many earlier ids.
    """
    yield _REPOINT.bind(owner=owner, into=into)
    yield _STORE.bind(owner=owner, into_owner=into, merged_at=now_us)
    if len((yield _NAMES.bind(owner=into))) > EARLIER_IDS_MAX:
        raise MergeConflictError(f"{into!r} has {EARLIER_IDS_MAX} earlier ids already")


def store_entry(merged: MergedEntry) -> Program[None]:
    yield _STORE_ENTRY.bind(**merged._asdict())


def list_entries(owner: str) -> Program[list[MergedEntry]]:
    return [_decode(*row) for row in (yield _OF_OWNER.bind(owner=owner))]


def find_entries(leaf_keys: Iterable[int]) -> Program[list[MergedEntry]]:
    return [_decode(*row) for row in (yield _ON_LEAVES.bind(keys=[*leaf_keys]))]


def list_earlier_ids_on(owners: Sequence[str], leaf_keys: Iterable[int]) -> Program[list[str]]:
    """List these owners' earlier ids whose entries were merged into entries on leaves with these keys."""
    earlier_ids = [row[0] for row in (yield _EARLIER_IDS.bind(owners=owners))]
    rows = (yield _THEIRS_ON_LEAVES.bind(keys=[*leaf_keys], owners=earlier_ids)) if earlier_ids else []
    return sorted({row[0] for row in rows})


def forget_merged(owners: Sequence[str], leaf_keys: Sequence[int] | None = None) -> Program[None]:
    """Forget these earlier ids or, with `leaf_keys`, only what became of their entries on leaves with these keys."""
    if leaf_keys is not None:
        yield _FORGET_ON_LEAVES.bind(owners=owners, keys=list(leaf_keys))
        return
    yield _FORGET_ENTRIES.bind(owners=owners)
    yield _FORGET.bind(owners=owners)


def _decode(owner: str, leaf_key: int, into_owner: str, kind: str, stats: str) -> MergedEntry:
    return MergedEntry(owner, leaf_key, into_owner, ChangeKind(kind), stats)


_theirs, _of_owners = col("owner").eq(param("owner")), col("owner").in_(param("owners"))
_on_leaves = col("leaf_key").in_(param("keys"))
_into = select(col("into_owner")).from_(MERGED_OWNERS).where(_theirs)
_FIND, _HELD = _into.prepared(), _into.locked(Lock.SHARE).prepared()
_named = any_of(_theirs, col("into_owner").eq(param("owner")))
_earlier = select(col("owner")).from_(MERGED_OWNERS).where(col("into_owner").in_(param("owners")))
_EARLIER_IDS = _earlier.packed().prepared()
_names = select(col("owner"), col("into_owner")).from_(MERGED_OWNERS).where(_named)
_NAMES = _names.order_by(asc(col("owner"))).prepared()
_REPOINT = update(MERGED_OWNERS).set(into_owner=param("into")).where(col("into_owner").eq(param("owner"))).prepared()
_STORE, _STORE_ENTRY = prepare_put(MERGED_OWNERS), prepare_put(MERGED_ENTRIES)
_entries = select(*map(col, MergedEntry._fields)).from_(MERGED_ENTRIES)
_OF_OWNER = _entries.where(_theirs).order_by(asc(col("leaf_key"))).packed().prepared()
_ON_LEAVES = _entries.where(_on_leaves).packed().prepared()
_THEIRS_ON_LEAVES = _entries.where(_of_owners, _on_leaves).packed().prepared()
_FORGET = delete(MERGED_OWNERS).where(_of_owners).prepared()
_FORGET_ENTRIES = delete(MERGED_ENTRIES).where(_of_owners).prepared()
_FORGET_ON_LEAVES = delete(MERGED_ENTRIES).where(_of_owners, _on_leaves).prepared()
