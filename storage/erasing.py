"""What the log keeps of owners who were erased: numbers, and for a while cells that nobody's name stands at.

The rule: an owner is renamed from the oldest row up, so that who counts by the log meets each name as one piece of a
history; the cells go once everybody has counted them.
"""

from __future__ import annotations

from functools import lru_cache

from querybuilder import TEXT, Dialect, Select, asc, coalesce, col, lit, max_, min_, null, param, select, update

from .change_log import change_log
from .journal import NAMELESS
from .migrate import CHANGE_LOG, CURVES, LIVE_MARK
from .store import Program


class Erasing:
    """The statements, for one dialect; see `erasing`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        theirs = col("owner").eq(param("owner"))
        self._newest = select(max_(col("seq"))).from_(CHANGE_LOG).where(theirs).compile(dialect)
        owned = select(col("seq")).from_(CHANGE_LOG).where(theirs, col("seq").le(param("last")))
        renamed = update(CHANGE_LOG).set(owner=param("nameless"), detail=null(TEXT))
        self._rename = renamed.where(theirs, col("seq").in_(_first(owned))).compile(dialect)
        here = owned.where(col("board_key").eq(param("board_key")))
        self._rename_here = renamed.where(theirs, col("seq").in_(_first(here))).compile(dialect)
        log = change_log(dialect)
        horizon = log.horizon_now.scalar()
        folded = select(min_(col("position"))).from_(LIVE_MARK).scalar()
        fits = select(min_(col("mark_position"))).from_(CURVES)
        fitted = fits.where(col("board_key", CURVES).eq(col("board_key", CHANGE_LOG))).scalar()
        counted = (log.position.lt(coalesce(bound, horizon)) for bound in (folded, fitted))
        old = (col("detail").is_null(), col("updated_at").lt(param("before_us")))
        erased = select(col("seq")).from_(CHANGE_LOG).where(*old, *counted)
        blanked = update(CHANGE_LOG).set(previous=lit(""), next=lit(""), detail=lit(""))
        self._blank = blanked.where(col("detail").is_null(), col("seq").in_(_first(erased))).compile(dialect)

    def newest(self, owner: str) -> Program[int]:
        """The last of an owner's rows, for `rename`."""
        rows = yield self._newest.bind(owner=owner)
        return int(rows[0][0] or 0)

    def rename(
        self, owner: str, *, token: str, last: int, rows_max: int, board_key: int | None = None
    ) -> Program[bool]:
        """Take name and post out of an owner's oldest rows up to `last`; on one board only, where it is given.

        `token` tells those of one erasure from others, and says nothing. Answers whether there may be more.
        """
        bound = {"owner": owner, "nameless": NAMELESS + token, "last": last, "limit": rows_max}
        if board_key is None:
            rows = yield self._rename.bind(**bound)
        else:
            rows = yield self._rename_here.bind(**bound, board_key=board_key)
        return bool(rows[0][0] >= rows_max)

    def blank(self, *, before_us: int, rows_max: int) -> Program[int]:
        """Take the cells out of rows without a name, where no fit and no live count goes on from before them.

        `before_us`: what is younger may be missing from a fit that is not stored yet. Answers how many rows.
        """
        rows = yield self._blank.bind(before_us=before_us, limit=rows_max)
        return int(rows[0][0])


def _first(rows: Select) -> Select:
    return rows.order_by(asc(col("seq"))).limit(param("limit"))


@lru_cache
def erasing(dialect: Dialect) -> Erasing:
    """The statements, compiled once."""
    return Erasing(dialect)
