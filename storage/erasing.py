"""What the log keeps of owners who were erased: numbers, and for a while cells that nobody's name stands at.

The rule: an owner is renamed from the oldest row up, so that who counts by the log meets each name as one piece of a
history; the cells go once everybody has counted them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from querybuilder import TEXT, Dialect, Term, asc, coalesce, col, insert, lit, min_, null, param, select, update

from .change_log import change_log
from .journal import NAMELESS
from .journal_blocks import Stretch, blocks, may_hold
from .migrate import CHANGE_LOG, CURVES, LIVE_MARK
from .records import INT64_MAX
from .store import Program


class Erasing:
    """The statements, for one dialect; see `erasing`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        log = change_log(dialect)
        theirs = (
            col("owner").eq(param("owner")),
            log.position.ge(param("first")),
            log.position.le(param("last")),
        )
        found = select(col("seq"), col("board_key")).from_(CHANGE_LOG).where(*theirs).order_by(asc(col("seq")))
        self._found = found.limit(param("limit")).packed().compile(dialect)
        renamed = update(CHANGE_LOG).set(owner=param("nameless"), detail=null(TEXT))
        by_number = (log.position.ge(param("first")), log.position.le(param("last")), col("seq").in_(param("seqs")))
        self._rename = renamed.where(*by_number).compile(dialect)
        said: dict[str, Term | str | int] = {"board_key": 0, "owner": "", "updated_at": param("now_us")}
        said |= {"previous": "", "next": "", "detail": ""} | ({"place": param("place")} if dialect.transaction else {})
        self._say = insert(CHANGE_LOG).values(**said).returning(col("seq")).compile(dialect)
        horizon = log.horizon_now.scalar()
        folded = select(min_(col("position"))).from_(LIVE_MARK).scalar()
        fits = select(min_(col("mark_position"))).from_(CURVES)
        fitted = fits.where(col("board_key", CURVES).eq(col("board_key", CHANGE_LOG))).scalar()
        counted = (log.position.lt(coalesce(bound, horizon)) for bound in (folded, fitted))
        old = (col("detail").is_null(), col("updated_at").lt(param("before_us")))
        erased = select(col("seq")).from_(CHANGE_LOG).where(*old, *counted)
        first = erased.order_by(asc(col("seq"))).limit(param("limit"))
        blanked = update(CHANGE_LOG).set(previous=lit(""), next=lit(""), detail=lit(""))
        self._blank = blanked.where(col("detail").is_null(), col("seq").in_(first)).compile(dialect)

    def say(self, *, now_us: int, place: int = 0) -> Program[int]:
        """Log that an owner is erased, without a name, after `place` other changes; answers the row's `seq`."""
        given = {"now_us": now_us} | ({"place": place} if self._dialect.transaction else {})
        rows = yield self._say.bind(**given)
        return int(rows[0][0])

    def stretches(self, owner: str, *, past: int) -> Program[tuple[list[Stretch], int | None]]:
        """Where the owner's rows past a position may be, from the oldest up, and past which position to go on."""
        index = blocks(self._dialect)
        page = yield from index.above(past)
        if page:
            return [block.stretch for block in page if may_hold(block.filter, owner)], page[-1].stretch.first
        covered = yield from index.covered()
        return [Stretch(max(past, covered) + 1, INT64_MAX)], None

    def rename(
        self, owner: str, stretch: Stretch, *, token: str, until: Mapping[int, int], otherwise: int, rows_max: int
    ) -> Program[bool]:
        """Take name and post out of the owner's oldest rows in a stretch, up to the `seq` of its board in `until`.

        `otherwise` on other boards. `token` tells those of one erasure from others. Whether there may be more.
        """
        bound = {"first": stretch.first, "last": stretch.last}
        rows = yield self._found.bind(owner=owner, limit=rows_max, **bound)
        seqs = [seq for seq, board_key in rows if seq <= until.get(board_key, otherwise)]
        if seqs:
            yield self._rename.bind(nameless=NAMELESS + token, seqs=seqs, **bound)
        return len(rows) == rows_max and bool(seqs)

    def blank(self, *, before_us: int, rows_max: int) -> Program[int]:
        """Take the cells out of rows without a name, where no fit and no live count goes on from before them.

        `before_us`: what is younger may be missing from a fit that is not stored yet. Answers how many rows.
        """
        rows = yield self._blank.bind(before_us=before_us, limit=rows_max)
        return int(rows[0][0])


@lru_cache
def erasing(dialect: Dialect) -> Erasing:
    """The statements, compiled once."""
    return Erasing(dialect)
