"""Refreshes that operators demand at a front end and that a job process meets, wherever each of them runs.

    demanded ──a job process takes it (conditional write)──> taken ──its refresh began later──> answered

A column has one row; numbers tell demands apart. The rule: a demand is answered by a refresh that began after it was
made, so an answer to a number answers every lower one, and never a higher one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from querybuilder import Condition, Dialect, asc, col, excluded, insert, param, select, update

from .migrate import DEMANDS, next_in
from .records import Board
from .store import Program

Outcome = Literal["refreshed", "unknown_board", "unsupported", "failed"]


@dataclass(frozen=True, slots=True)
class StoredDemand:
    """What is demanded of a column."""

    board_key: int
    column_index: int
    epoch: int
    board_id: str
    number: int  # grows with every demand of the store
    origin: str | None  # the request that it was made for


@dataclass(frozen=True, slots=True)
class DemandAnswer:
    """What came of a demand."""

    outcome: Outcome
    detail: str = ""
    version: int = 0  # of the curve that was stored
    took_us: int = 0


@dataclass(frozen=True, slots=True)
class DemandState:
    """How far the demands of a column are."""

    taken: int  # the highest number that a job process works on
    answered: int  # … and that is answered, by `answer`
    answer: DemandAnswer


def make_demand(dialect: Dialect, board: Board, column_index: int, origin: str = "") -> Program[int]:
    """Demand a refresh for the request `origin`; answers its number."""
    number = yield from next_in(dialect, "refresh_demand")
    yield (
        insert(DEMANDS)
        .values(
            board_key=board.key,
            column_index=column_index,
            epoch=board.epoch,
            board_id=param("board_id"),
            demanded=number,
            taken=0,
            answered=0,
            outcome="",
            detail="",
            version=0,
            took_us=0,
            origin=param("origin"),
        )
        .on_conflict("board_key", "column_index")
        .do_update(epoch=excluded("epoch"), demanded=excluded("demanded"), origin=excluded("origin"))
        .build(dialect, board_id=board.id, origin=origin)
    )
    return number


def open_demands(dialect: Dialect, limit: int) -> Program[list[StoredDemand]]:
    """Demands that no job process has taken, oldest first."""
    rows = yield (
        select(*(col(name) for name in ("board_key", "column_index", "epoch", "board_id", "demanded", "origin")))
        .from_(DEMANDS)
        .where(col("demanded").gt(col("taken")))
        .order_by(asc(col("demanded")))
        .limit(limit)
        .build(dialect)
    )
    return [StoredDemand(*row) for row in rows]


def take_demand(dialect: Dialect, demand: StoredDemand) -> Program[bool]:
    """Take a demand; False where another process was faster, or where it was made again meanwhile."""
    [[rows]] = yield (
        update(DEMANDS)
        .set(taken=demand.number)
        .where(*_slot(), col("demanded").eq(param("number")), col("taken").lt(param("number")))
        .build(dialect, key=demand.board_key, index=demand.column_index, number=demand.number)
    )
    return bool(rows)


def give_demand_back(dialect: Dialect, demand: StoredDemand) -> Program[None]:
    """Let another process take it."""
    yield (
        update(DEMANDS)
        .set(taken=0)
        .where(*_slot(), col("taken").eq(param("number")))
        .build(dialect, key=demand.board_key, index=demand.column_index, number=demand.number)
    )


def answer_demand(dialect: Dialect, demand: StoredDemand, answer: DemandAnswer) -> Program[None]:
    """Tell what came of a demand, unless a later one is answered already."""
    yield (
        update(DEMANDS)
        .set(
            answered=demand.number,
            outcome=answer.outcome,
            detail=param("detail"),
            version=answer.version,
            took_us=answer.took_us,
        )
        .where(*_slot(), col("answered").lt(param("number")))
        .build(
            dialect,
            key=demand.board_key,
            index=demand.column_index,
            number=demand.number,
            detail=answer.detail,
        )
    )


def demand_state(dialect: Dialect, board_key: int, column_index: int) -> Program[DemandState | None]:
    """How far the demands of a column are; None where its board is gone."""
    rows = yield (
        select(*(col(name) for name in ("taken", "answered", "outcome", "detail", "version", "took_us")))
        .from_(DEMANDS)
        .where(*_slot())
        .build(dialect, key=board_key, index=column_index)
    )
    if not rows:
        return None
    taken, answered, *answer = rows[0]
    return DemandState(taken, answered, DemandAnswer(*answer))


def _slot() -> tuple[Condition, Condition]:
    return col("board_key").eq(param("key")), col("column_index").eq(param("index"))
