"""Takes erased owners out of the change log. Their changes stay, first without a name, later without cells.

`rename_owner` replaces the owner's name by a token and removes the posts. `blank_cells` removes the cells once every
fit and every live count has counted them. Both lock a bundle while they rewrite it.

The most important rule: rename an owner's bundles from the oldest to the newest. In the log, all changes under the
token then come before all changes under the name, so a job that counts from the log never sees the two mixed.
"""

from collections.abc import Mapping

from querybuilder import (
    INTEGER,
    TEXT,
    Lock,
    Term,
    asc,
    coalesce,
    col,
    contains_text,
    insert,
    min_,
    null,
    param,
    select,
    update,
)
from storage.log.bundles import NAMELESS, cells_text, owners_of, owners_text, pieces_of
from storage.log.change_log import HORIZON, POSITION, count_rows_holding
from storage.log.log_record import decode_records, encode_records
from storage.log.owner_index import PositionRange, may_hold, owner_blocks
from storage.records import INT64_MAX
from storage.schema.tables import CHANGE_LOG, CURVES, LIVE_MARK
from storage.store import Program, Rows

_ALIAS = "v"


class ErasureStatements:
    """Programs that take an owner out of the change log."""

    def __init__(self) -> None:
        positions = (POSITION.ge(param("first")), POSITION.le(param("last")))
        theirs = select(col("seq"), col("changes")).from_(CHANGE_LOG)
        between = (*positions, col("seq").gt(param("past")), col("seq").le(param("until")))
        theirs = theirs.where(*between, contains_text(col("owners"), param("owner", TEXT))).order_by(asc(col("seq")))
        self._found = theirs.limit(param("limit")).packed().prepared()
        held = select(*map(col, ("seq", "board_key", "owners", "cells", "posts"))).from_(CHANGE_LOG)
        held = held.where(*positions, col("seq").in_(param("seqs"))).order_by(asc(col("seq")))
        self._held = held.packed().locked(Lock.NO_KEY_UPDATE).prepared()
        row = {"board_key": INTEGER, "seq": INTEGER, "owners": TEXT, "posts": TEXT}
        same = (col(name, CHANGE_LOG).eq(col(name, _ALIAS)) for name in ("board_key", "seq"))
        renamed = update(CHANGE_LOG).set(owners=col("owners", _ALIAS), posts=col("posts", _ALIAS), erased=1)
        self._rename = renamed.from_rows(_ALIAS, param("rows"), **row).where(*same).prepared()
        event: dict[str, Term | str | int] = {"board_key": 0, "updated_at": param("now_us"), "changes": 1, "cells": ""}
        event |= {"owners": owners_text([""]), "posts": encode_records([None]), "place": param("place")}
        self._log_event = insert(CHANGE_LOG).values(**event).only_numbered("place").returning(col("seq")).prepared()
        folded = select(min_(col("position"))).from_(LIVE_MARK).scalar()
        fits = select(min_(col("mark_position"))).from_(CURVES)
        fitted = fits.where(col("board_key", CURVES).eq(col("board_key", CHANGE_LOG))).scalar()
        counted = (POSITION.lt(coalesce(bound, HORIZON)) for bound in (folded, fitted))
        old = (col("erased").not_null(), col("updated_at").lt(param("before_us")))
        erased = select(POSITION, col("seq"), col("changes")).from_(CHANGE_LOG).where(*old, *counted)
        self._erased = erased.order_by(asc(col("seq"))).limit(param("limit")).packed().prepared()
        cells = {"board_key": INTEGER, "seq": INTEGER, "cells": TEXT}
        same = (col(name, CHANGE_LOG).eq(col(name, _ALIAS)) for name in ("board_key", "seq"))
        blanked = update(CHANGE_LOG).set(cells=col("cells", _ALIAS), erased=null(INTEGER))
        self._blank = blanked.from_rows(_ALIAS, param("rows"), **cells).where(*same).prepared()

    def log_erasure(self, *, now_us: int, place: int = 0) -> Program[int]:
        """Log that an owner is erased, without the owner's name, and return the `seq` of the bundle."""
        rows = yield self._log_event.bind(now_us=now_us, place=place)
        return int(rows[0][0])

    def find_stretches(self, owner: str, *, past: int) -> Program[tuple[list[PositionRange], int | None]]:
        """Return ranges of log positions above `past` that may hold the owner's changes, the oldest range first.

        Also return the position to pass as `past` in the next call, or None if there are no further ranges.
        """
        page = yield from owner_blocks.list_blocks_above(past)
        if page:
            return [block.positions for block in page if may_hold(block.filter, owner)], page[-1].positions.first
        covered = yield from owner_blocks.find_covered_position()
        return [PositionRange(max(past, covered) + 1, INT64_MAX)], None

    def rename_owner(
        self,
        owner: str,
        positions: PositionRange,
        *,
        token: str,
        until: Mapping[int, int],
        otherwise: int,
        rows_max: int,
        past: int = 0,
    ) -> Program[int | None]:
        """Replace the name by the token, and remove the posts, in the owner's oldest bundles at these positions.

        Return the `seq` to pass as `past` in the next call, or None if no bundle is left. One call rewrites bundles
        whose `seq` is above `past`, with about `rows_max` changes in all. `until` gives the last `seq` to rewrite, by
        board key; `otherwise` is the last `seq` for all other boards. Each erasure has a `token` of its own.
        """
        last = max(otherwise, *until.values()) if until else otherwise
        sought = {"first": positions.first, "last": positions.last, "owner": owners_text([owner])}
        found = yield self._found.bind(**sought, past=past, until=last, limit=rows_max)
        if not found:
            return None
        held = yield from self._hold(positions, found, rows_max)
        renamed = []
        for seq, board_key, owners, _, posts in held:
            if seq <= until.get(board_key, otherwise):
                renamed.append((board_key, seq, *_without(owner, NAMELESS + token, owners, posts)))
        if renamed:
            yield self._rename.bind(rows=renamed)
        return int(held[-1][0]) if held else None

    def _hold(self, positions: PositionRange, found: Rows, rows_max: int) -> Program[Rows]:
        seqs = [seq for seq, _ in found[: count_rows_holding([row[1:] for row in found], rows_max)]]
        return (yield self._held.bind(first=positions.first, last=positions.last, seqs=seqs))

    def blank_cells(self, *, before_us: int, rows_max: int) -> Program[int]:
        """Remove the cells of nameless changes that every fit and every live count has counted.

        Return how many bundles were rewritten. They hold about `rows_max` changes in all. Changes logged at `before_us`
        or later keep their cells, because a fit that is not stored yet may not have counted them.
        """
        erased = yield self._erased.bind(before_us=before_us, limit=rows_max)
        if not erased:
            return 0
        positions = PositionRange(min(row[0] for row in erased), max(row[0] for row in erased))
        held = yield from self._hold(positions, [row[1:] for row in erased], rows_max)
        yield self._blank.bind(rows=[(key, seq, _blanked(cells, posts)) for seq, key, _, cells, posts in held])
        return len(held)


def _without(owner: str, nameless: str, owners: str, posts: str) -> tuple[str, str]:
    names, records = owners_of(owners), decode_records(posts)
    kept = [None if name == owner else record for name, record in zip(names, records, strict=True)]
    return owners_text([nameless if name == owner else name for name in names]), encode_records(kept)


def _blanked(cells: str, posts: str) -> str:
    changes = zip(pieces_of(cells), decode_records(posts), strict=True)
    return cells_text(["" if record is None else piece for piece, record in changes])


erasure_statements = ErasureStatements()
