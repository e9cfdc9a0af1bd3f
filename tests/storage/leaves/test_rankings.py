"""Compare the programs that all views of a ranking use with sorted tuples in plain Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.leaves.rankings import Ranking
from storage.leaves.row_rankings import RowRanking
from storage.records import INT64_MAX, Best, Board, ColumnSpec, Entry, Ties
from storage.store import Program, in_partition
from tests.storage.deployment import NOW_US, Deployment, Session, counter, ranked
from tests.storage.plain import Place, Reached, place_of, rank_rows

COLUMNS = (
    ranked("xp", min_scaled=-3, max_scaled=3),
    ranked("lap", scale=3, min_scaled=0, max_scaled=86_400_000),
    ranked("wide", scale=9, min_scaled=-INT64_MAX - 1, max_scaled=INT64_MAX),
)
OWNERS = st.text(st.sampled_from("abé漢😀 %'\"\\"), min_size=1, max_size=3)


@dataclass(frozen=True)
class Case:
    column: ColumnSpec
    ties: Ties
    rows: Mapping[str, Sequence[Reached | None]]
    probes: list[tuple[int, int, str]]  # places to look up: value, time reached, owner; some places have no row
    limit: int
    skip_rows: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw up to fourteen rows with few different values. Some rows have no value."""
    column = replace(draw(st.sampled_from(COLUMNS)), best=draw(st.sampled_from(Best)))
    few = draw(st.lists(st.integers(column.min_scaled, column.max_scaled), min_size=1, max_size=4))
    values = st.sampled_from([*few, column.min_scaled, column.max_scaled])
    reached = st.sampled_from((1, 2, NOW_US))
    rows = draw(st.dictionaries(OWNERS, st.none() | st.tuples(values, reached), max_size=14))
    taken = [st.tuples(st.just(held[0]), st.just(held[1]), st.just(owner)) for owner, held in rows.items() if held]
    near = values.flatmap(
        lambda value: st.integers(max(value - 1, column.min_scaled), min(value + 1, column.max_scaled))
    )
    probe = st.one_of(*taken, st.tuples(near, reached, OWNERS))
    return Case(
        column=column,
        ties=draw(st.sampled_from(Ties)),
        rows={owner: (None, held) for owner, held in rows.items()},
        probes=draw(st.lists(probe, min_size=1, max_size=3)),
        limit=draw(st.integers(0, 5)),
        skip_rows=draw(st.integers(0, 6)),
    )


class Compared:
    """One column of a board, both in the store and in plain Python."""

    def __init__(self, deployment: Deployment, board: Board, case: Case) -> None:
        self.deployment, self.board, self.case = deployment, board, case
        self.entries = deployment.entries(board)
        self.ranking: Ranking = self.entries.rankings[1]
        self.order = rank_rows(board.spec, 1, case.rows)

    async def fill(self) -> None:
        rows = [
            Entry(owner, NOW_US, [None, None if row[1] is None else self.cell(*row[1])])  # type: ignore[arg-type]
            for owner, row in self.case.rows.items()
        ]

        def program() -> Program[None]:
            for part in self.board.leaves:
                theirs = [(part.rows_key, row) for row in rows if self.board.leaf_of(row.owner) is part]
                if theirs:
                    inserting = self.deployment.boards.open_rows(part).table.insert_rows(theirs)
                    assert (yield from in_partition(part.partition, inserting)) == len(theirs)

        await self.deployment.store.write(program)

    def cell(self, value: int, reached_us: int) -> str:
        return self.ranking.padding.pad(value, reached_us)

    def expected(self, at: Place) -> tuple[str, str]:
        value, reached_us = self.case.rows[at.owner][1]  # type: ignore[misc]
        assert isinstance(value, int)
        return self.cell(value, reached_us), at.owner

    def returned(self, entries: Sequence[Entry]) -> list[tuple[object, str]]:
        return [(entry.cells[1], entry.owner) for entry in entries]

    def check_ends(self) -> Program[None]:
        """Check the programs that start at one end of the ranking."""
        case, order = self.case, self.order
        first = yield from self.ranking.read_first_rows(case.limit)
        assert self.returned(first) == [self.expected(at) for at in order[: case.limit]]
        worst = yield from self.ranking.find_worst_cell()
        assert worst == (self.expected(order[-1])[0] if order else None)
        landed = yield from self.ranking.find_row(None, case.skip_rows + 1)
        assert landed == (self.expected(order[case.skip_rows]) if case.skip_rows < len(order) else None)

    def check_counts(self, at: Place, cell: str) -> Program[None]:
        """Check the number of better rows and the number of tied rows for a place."""
        better = [one for one in self.order if one.key < at.key]
        tied = [one for one in self.order if one.key == at.key]
        assert (yield from self.ranking.count_better(cell)) == len(better)
        up_to = yield from self.ranking.count_from_top(cell, self.case.limit, 0)
        assert up_to.better_count == min(len(better), self.case.limit)
        ties = yield from self.ranking.count_tied(cell, at.owner)
        assert ties == (len(tied), sum(one.owner < at.owner for one in tied))
        if isinstance(self.ranking, RowRanking):
            landed = yield from self.ranking.find_row_after_skip(self.case.skip_rows, cell)
            below = [one for one in self.order if one.key > at.key][self.case.skip_rows :]
            assert landed == (self.expected(below[0]) if below else None)

    def check_pages(self, at: Place, cell: str) -> Program[None]:
        """Check the rows that the store reads before and after a place."""
        limit, other = self.case.limit, self.case.skip_rows
        before, after = [one for one in self.order if one < at], [one for one in self.order if one > at]
        from_it_on = [one for one in self.order if one >= at]
        rows = yield from self.ranking.read_rows_after(cell, at.owner, limit)
        assert self.returned(rows) == [self.expected(one) for one in after[:limit]]
        rows = yield from self.ranking.read_rows_before(cell, at.owner, limit)
        assert self.returned(rows) == [self.expected(one) for one in before[max(len(before) - limit, 0) :]]
        ahead = before if self.ranking.timed else [one for one in before if one.key < at.key]
        following = yield from self.ranking.find_next_better(cell, at.owner)
        assert following == (self.expected(ahead[-1]) if ahead else None)
        near = yield from self.ranking.read_rows_around(cell, at.owner, better_rows=limit, worse_rows=other)
        near_before = before[max(len(before) - limit, 0) :]
        assert self.returned(near.before) == [self.expected(one) for one in near_before]
        assert self.returned(near.after) == [self.expected(one) for one in from_it_on[:other]]
        cells = [entry.cells[self.ranking.index] for entry in near.before]
        if len(cells) > 1 and cells[0] == cells[1]:
            _, ties = yield from self.ranking.count_tied(str(cells[0]), near.before[0].owner)
            assert near.edge_ties == ties

    def check(self) -> Program[None]:
        yield from self.check_ends()
        for value, reached_us, owner in self.case.probes:
            at = place_of(self.board.spec, 1, value, reached_us, owner)
            cell = self.cell(value, reached_us)
            yield from self.check_counts(at, cell)
            yield from self.check_pages(at, cell)
        values = sorted(probe[0] for probe in self.case.probes)
        starts = [self.ranking.padding.text_start(value) for value in (values[0], values[-1] + 1)]
        counted = yield from self.ranking.count_range(least=starts[0], past=starts[1])
        held = [row[1][0] for row in self.case.rows.values() if row[1] is not None]
        assert counted == sum(values[0] <= value <= values[-1] for value in held if isinstance(value, int))


def test_every_program_of_a_ranking_agrees_with_sorting_plain_tuples(session: Session) -> None:
    @settings(max_examples=15, deadline=None)
    @given(cases())
    def check(case: Case) -> None:
        board = session.create(counter("shots"), case.column, ties=case.ties)
        compared = Compared(session.deployment, board, case)
        session.run(compared.fill())
        session.run(session.deployment.store.read(compared.check, heavy=True))

    check()
