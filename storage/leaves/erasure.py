"""Removes erased owners from the change log, where their changes stay, first without the name and later without cells.

`rename_owner` replaces the owner's name with a token and removes the posts. Once all curves, and the live counts that
update curves, include the changes, `blank_cells` removes the cells. Both lock the rows that they rewrite.

The name is replaced from the oldest bundle (a row of the log) to the newest. So all changes under the token come before
all changes under the name, and a job that counts from the log never sees the two mixed.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from querybuilder import INTEGER, TEXT, Lock, asc, coalesce, col, contains_text, min_, null, param, select, update
from storage.log.bundles import NAMELESS, cells_text, decode_records, encode_records, owners_of, owners_text, pieces_of
from storage.log.change_log import NEXT_POSITION, POSITION, LogPages, count_rows_holding, last_number_before
from storage.log.owner_index import PositionRange, may_hold, owner_blocks
from storage.records import INT64_MAX
from storage.schema.tables import CHANGE_LOG, CURVES, LIVE_MARK
from storage.store import Program, Rows

_ALIAS = "v"
_PAGES = LogPages("position", "owners")


_theirs = select(POSITION, col("changes")).from_(CHANGE_LOG)
_between = POSITION.gt(param("past")), POSITION.le(param("until"))
_theirs = _theirs.where(*_between, contains_text(col("owners"), param("owner", TEXT))).order_by(asc(POSITION))
_FOUND = _theirs.limit(param("limit")).packed().prepared()
_held = select(*map(col, ("position", "leaf_key", "owners", "cells", "posts"))).from_(CHANGE_LOG)
_held = _held.where(POSITION.in_(param("positions"))).order_by(asc(POSITION))
_HELD = _held.packed().locked(Lock.NO_KEY_UPDATE).prepared()
_row = {"position": INTEGER, "owners": TEXT, "posts": TEXT}
_same = col("position", CHANGE_LOG).eq(col("position", _ALIAS))
_renamed = update(CHANGE_LOG).set(owners=col("owners", _ALIAS), posts=col("posts", _ALIAS), erased=1)
_RENAME = _renamed.from_rows(_ALIAS, param("rows"), **_row).where(_same).prepared()
_folded = select(min_(col("position"))).from_(LIVE_MARK).scalar()
_fits = select(min_(col("mark"))).from_(CURVES)
_fitted = _fits.where(col("leaf_key", CURVES).eq(col("leaf_key", CHANGE_LOG))).scalar()
_counted = (POSITION.lt(coalesce(bound, NEXT_POSITION)) for bound in (_folded, _fitted))
_old = (col("erased").not_null(), col("updated_at").lt(param("before_us")))
_erased = select(POSITION, col("changes")).from_(CHANGE_LOG).where(*_old, *_counted)
_ERASED = _erased.order_by(asc(POSITION)).limit(param("limit")).packed().prepared()
_cells = {"position": INTEGER, "cells": TEXT}
_blanking = update(CHANGE_LOG).set(cells=col("cells", _ALIAS), erased=null(INTEGER))
_BLANK = _blanking.from_rows(_ALIAS, param("rows"), **_cells).where(_same).prepared()


def find_stretches(owner: str, *, past: int) -> Program[tuple[list[PositionRange], int | None]]:
    """Find the ranges of log positions above `past` that may hold the owner's changes, oldest range first.

    Also return the position to pass as `past` in the next call, or None if no ranges are left.
    """
    page = yield from owner_blocks.list_blocks_above(past)
    if page:
        return [block.positions for block in page if may_hold(block.filter, owner)], page[-1].positions.first
    covered = yield from owner_blocks.find_covered_position()
    return [PositionRange(max(past, covered) + 1, INT64_MAX)], None


def rename_owner(
    owner: str,
    positions: PositionRange,
    *,
    token: str,
    until: Mapping[int, int],
    otherwise: int,
    rows_max: int,
    past: int = 0,
) -> Program[int | None]:
    """Replace the owner's name with the token, and remove the owner's posts, in the oldest bundles that are left.

    A bundle is rewritten if its position is in `positions`, after `past`, and at most `until[leaf key]`, or at most
    `otherwise` if `until` lacks the leaf. One call handles bundles with about `rows_max` changes in all. Return the
    `past` for the next call, or None if no bundle is left. Each erasure needs its own `token`.
    """
    last = max(otherwise, *until.values()) if until else otherwise
    past, last = max(past, positions.first - 1), min(last, positions.last)
    found = yield _FOUND.bind(owner=owners_text([owner]), past=past, until=last, limit=rows_max)
    if not found:
        return None
    held = yield from _hold(found, rows_max)
    renamed = []
    for position, leaf_key, owners, _, posts in held:
        if position <= until.get(leaf_key, otherwise):
            renamed.append((position, *_without({owner: NAMELESS + token}, owners, posts)))
    if renamed:
        yield _RENAME.bind(rows=renamed)
    return int(held[-1][0]) if held else None


class Erased(NamedTuple):
    """The token that replaces an erased owner's name in a log, up to the position of the erasure."""

    token: str
    until: int


def find_bundles_of(
    erased: Mapping[str, Erased], leaf_keys: Sequence[int], *, after: int, changes_max: int
) -> Program[tuple[list[int], int | None]]:
    """Find the positions of these leaves' bundles with changes of erased owners, among about `changes_max` changes.

    Also return the number to pass as `after` in the next call, or None if no bundle is left.
    """
    page = yield from _PAGES.read_page(after, changes_max=changes_max, boards=leaf_keys)
    found = [position for position, owners in page if not erased.keys().isdisjoint(owners_of(owners))]
    return found, last_number_before(page[-1][0] + 1) if page else None


def rename_owners(erased: Mapping[str, Erased], positions: Sequence[int]) -> Program[None]:
    """Do for many owners what `rename_owner` does, in the bundles at these positions. Call this from the oldest on."""
    renamed = []
    for position, _, owners, _, posts in (yield _HELD.bind(positions=positions)):
        tokens = {owner: NAMELESS + each.token for owner, each in erased.items() if position <= each.until}
        renamed.append((position, *_without(tokens, owners, posts)))
    if renamed:
        yield _RENAME.bind(rows=renamed)


def _hold(found: Rows, rows_max: int) -> Program[Rows]:
    wanted = found[: count_rows_holding([row[1:] for row in found], rows_max)]
    return (yield _HELD.bind(positions=[row[0] for row in wanted]))


def blank_cells(*, before_us: int, rows_max: int) -> Program[int]:
    """Remove the cells from erased owners' changes, once all stored curves and live counts include these changes.

    Return how many bundles were rewritten, which together hold about `rows_max` changes. Changes logged at `before_us`
    or later keep their cells, because a curve that is still being fitted may not include them.
    """
    erased = yield _ERASED.bind(before_us=before_us, limit=rows_max)
    if not erased:
        return 0
    held = yield from _hold(erased, rows_max)
    yield _BLANK.bind(rows=[(position, _blanked(cells, posts)) for position, _, _, cells, posts in held])
    return len(held)


def _without(tokens: Mapping[str, str], owners: str, posts: str) -> tuple[str, str]:
    names, records = owners_of(owners), decode_records(posts)
    kept = [None if name in tokens else record for name, record in zip(names, records, strict=True)]
    return owners_text([tokens.get(name, name) for name in names]), encode_records(kept)


def _blanked(cells: str, posts: str) -> str:
    changes = zip(pieces_of(cells), decode_records(posts), strict=True)
    return cells_text(["" if record is None else piece for piece, record in changes])
