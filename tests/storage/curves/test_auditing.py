"""Compare audits with true ranks at the time of the fit, because operators must be able to trust an alarm."""

import random
from dataclasses import dataclass, replace

import pytest

from config.settings import JobSettings
from predictor import AsOf, Curve, LiveCounts, LiveCurve
from storage.curves.auditing import Audit, AuditedPart, audit_curve
from storage.curves.curve_book import ServedCurve
from storage.curves.stored_curves import store_curve
from storage.errors import BoardChangedError, UnknownBoardError
from storage.leaves.totals import CHANGES
from storage.log.cells import Padding
from storage.log.change_log import change_log
from storage.records import Best, Board, Ties
from storage.store import Program
from tests.storage.deployment import NOW_US, PREDICTOR, Deployment, counter, part, ranked

LIMITS = JobSettings(audit_owners_max=40).model_copy(
    update={"audit_rows_max": 10_000, "audit_changes_max": 1_000, "audit_s_max": 10}
)
INDEX = 1
AT_ONCE = 8


@dataclass
class Audited:
    """A board, the keys of its owners, and methods that fit and audit the board's curve."""

    deployment: Deployment
    board: Board
    keys: dict[str, int]  # by owner, the curve's key for the owner's value
    rng: random.Random

    @property
    def padding(self) -> Padding:
        return Padding(self.board.spec, self.board.spec.columns[INDEX])

    async def post(self, count: int, *, owners: int = 80) -> None:
        """Post new values of random owners, a few at a time, and erase one of these owners each time."""
        for posted in range(0, count, AT_ONCE):
            self.deployment.clock.now_us += 1
            chosen = [f"o{number}" for number in self.rng.sample(range(owners), min(AT_ONCE, count - posted))]
            values = {owner: part(self.board, {"shots": 1}, {"xp": self.rng.randrange(-30, 30)}) for owner in chosen}
            await self.deployment.apply(*(self.deployment.post(owner, stats) for owner, stats in values.items()))
            for owner, entry in (await self.deployment.rows(self.board, chosen)).items():
                self.keys[owner] = self.padding.key_of_cell(str(entry.cells[INDEX]))
            await self.deployment.erase(self.board, chosen[0])
            del self.keys[chosen[0]]

    async def fit(self) -> ServedCurve:
        curve, mark = await self.deployment.fit(self.board, INDEX)
        changes = (await self.deployment.totals(self.board)).get(CHANGES, 0)
        version = await self.deployment.write(store_curve, self.board.leaf, INDEX, curve, changes=changes, mark=mark)
        return ServedCurve(
            self.board.key, INDEX, self.board.gate.epoch, version, curve, mark, partition=self.board.partition
        )

    async def audit(self, moment: ServedCurve, limits: JobSettings = LIMITS, *, ticks: float = 0) -> Audit:
        """Return what an audit finds. Each time the audit reads its clock, the clock advances by `ticks` seconds."""
        now_s = 0.0

        def monotonic() -> float:
            nonlocal now_s
            now_s += ticks
            return now_s

        parts = [AuditedPart(self.deployment.open_rows(self.board), moment, moment.mark)]

        def program() -> Program[Audit]:
            return audit_curve(parts, INDEX, limits, rng=random.Random(5), monotonic=monotonic)

        return await self.deployment.store.read(program, heavy=True)


async def fit_audited(
    deployment: Deployment, *, best: Best = Best.HIGH, ties: Ties = Ties.SHARED
) -> tuple[Audited, ServedCurve]:
    """Create a board with some entries, and fit a curve with few knots."""
    columns = counter("shots"), ranked("xp", best=best, min_scaled=-100, max_scaled=100)
    board = await deployment.create("b", *columns, ties=ties, predictor=replace(PREDICTOR, samples=6))
    made = Audited(deployment, board, {}, random.Random(11))
    await made.post(120)
    return made, await made.fit()


@pytest.mark.parametrize("ties", list(Ties))
@pytest.mark.parametrize("best", list(Best))
async def test_an_audit_ranks_as_of_the_fit_whatever_came_since(deployment: Deployment, best: Best, ties: Ties) -> None:
    made, moment = await fit_audited(deployment, best=best, ties=ties)
    then = sorted(made.keys.values())
    for _ in range(3):
        found = await made.audit(moment)
        assert found.outcome == "compared"
        assert len(found.compared) == LIMITS.audit_owners_max
        for each in found.compared:
            key = made.padding.key_of_cell(each.cell)
            assert key in made.keys.values()
            assert each.true_rank == 1 + sum(other < key for other in then)
            assert (each.rank, each.low, each.high) == moment.curve.locate(key)[:3]
        assert found.broken == []
        await made.post(40, owners=120)


async def test_an_audit_needs_the_log_only_if_the_board_changed_since_the_fit(deployment: Deployment) -> None:
    made, moment = await fit_audited(deployment)
    unmarked = replace(moment, fit_mark=None)
    assert (await made.audit(unmarked)).outcome == "compared"
    await made.post(3)
    assert (await made.audit(moment)).outcome == "compared"
    assert moment.mark is not None
    assert (await made.audit(unmarked)).outcome == "changed"
    assert (await made.audit(moment, LIMITS.model_copy(update={"audit_changes_max": 1}))).outcome == "changed"
    restored = replace(moment, fit_mark=moment.mark + 1_000)
    assert (await made.audit(restored)).outcome == "changed"
    await deployment.prune_log()
    assert (await made.audit(moment)).outcome == "changed"


async def test_an_audit_bounds_its_owners_its_rows_and_its_time(deployment: Deployment) -> None:
    made, moment = await fit_audited(deployment)
    assert len((await made.audit(moment, LIMITS.model_copy(update={"audit_owners_max": 3}))).compared) == 3
    near = await made.audit(moment, LIMITS.model_copy(update={"audit_rows_max": 20}))
    assert len(near.compared) == 10
    assert max(each.true_rank for each in near.compared) <= 10
    assert len((await made.audit(moment, LIMITS.model_copy(update={"audit_s_max": 8}), ticks=1)).compared) == 3


async def test_an_audit_takes_a_live_curve_as_of_its_own_mark(deployment: Deployment) -> None:
    made, moment = await fit_audited(deployment)
    assert isinstance(moment.curve, Curve)
    before = dict(made.keys)
    await made.post(30)
    counts = LiveCounts(moment.curve)
    for owner in before.keys() | made.keys.keys():
        counts.count_moves([(before.get(owner), made.keys.get(owner))])
    mark = await deployment.store.read(change_log.take_mark)
    live = replace(moment, curve=LiveCurve(moment.curve, counts, as_of=AsOf(NOW_US, mark)))
    now = sorted(made.keys.values())
    for _ in range(2):
        found = await made.audit(live)
        assert (found.outcome, found.broken) == ("compared", [])
        for each in found.compared:
            assert each.true_rank == 1 + sum(other < made.padding.key_of_cell(each.cell) for other in now)
        # With the mark of the fit, the audit would compare the live curve with outdated ranks.
        assert moment.mark is not None
        outdated = LiveCurve(moment.curve, counts, as_of=AsOf(NOW_US, moment.mark))
        assert (await made.audit(replace(moment, curve=outdated))).broken
        await made.post(30)


async def test_an_audit_refuses_a_board_that_was_emptied_or_deleted(deployment: Deployment) -> None:
    made, moment = await fit_audited(deployment)
    await deployment.reset()
    with pytest.raises(BoardChangedError):
        await made.audit(moment)
    await deployment.delete()
    with pytest.raises(UnknownBoardError):
        await made.audit(moment)


async def test_an_audit_of_an_empty_column_compares_nothing(deployment: Deployment) -> None:
    board = await deployment.create("b", counter("shots"), ranked("xp"))
    made = Audited(deployment, board, {}, random.Random(1))
    assert (await made.audit(await made.fit())).outcome == "empty"
