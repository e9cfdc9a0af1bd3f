"""Test that the audit job audits every column with a curve and no other column, and reports what it found."""

import random

import pytest

from config.settings import JobSettings, Settings
from jobs.curves.audit import AuditJob, Auditor
from predictor import Curve, Knot
from storage.curves.curve_book import ServedCurve
from storage.curves.stored_curves import store_curve
from storage.errors import NoCurveError, StoreBusyError
from storage.records import Board
from tests.jobs.refreshing import run_jobs
from tests.jobs.world import World, within

pytestmark = pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # the store makes no difference here
INTERVAL_S = 30.0
LIMITS = JobSettings(audit_owners_max=20).model_copy(
    update={"audit_rows_max": 1_000, "audit_changes_max": 100, "audit_s_max": 10}
)


def make_auditor(world: World, limits: JobSettings = LIMITS) -> Auditor:
    parts = world.store, world.deployment.boards, world.book, limits, world.meter
    return Auditor(*parts, monotonic=lambda: 0.0, rng=random.Random(3))


def make_job(world: World) -> AuditJob:
    return AuditJob(world.context(Settings(audit_interval_s=INTERVAL_S)), make_auditor(world))


async def store_and_serve(world: World, board: Board, curve: Curve) -> None:
    changes = (await world.deployment.totals(board))[-2]
    version = await world.store.write(lambda: store_curve(board.leaf, 0, curve, changes=changes))
    world.book.serve_curve(ServedCurve(board.key, 0, board.gate.epoch, version, curve, partition=board.partition))


async def create_board_with_curve(world: World, *, wrong: int = 0) -> Board:
    """Create ten owners with the values 0 to 9. The last knot of the curve counts `wrong` entries too many."""
    board = await world.create("b", columns=2)
    await world.post(board, {f"p{value}": value for value in range(10)})
    knots = [Knot(key_of_value(board, 9), 0, 1), Knot(key_of_value(board, 0), 9 + wrong, 1)]
    await store_and_serve(world, board, Curve(knots, total=10 + wrong, as_of_us=5, certificate=0.0 if wrong else None))
    return board


def key_of_value(board: Board, value: int) -> int:
    """Return the key of a value in the curve of the first column."""
    return -(value - board.spec.columns[0].min_scaled)


async def test_a_column_with_a_curve_is_found_and_audited_once_an_interval(world: World) -> None:
    for number in range(5):
        await world.create(f"empty-{number}")
    await create_board_with_curve(world)
    async with run_jobs(make_job(world)):
        for turn in (1, 2):
            await world.end_sleep(INTERVAL_S)
            await within(world.meter.events["rankcurve_audits compared"].get())
            assert world.meter.values["rankcurve_audit_error_ratio"] == [0] * 10 * turn
    assert world.meter.by_label("rankcurve_audits") == {"compared": 2}
    assert world.meter.counts["rankcurve_audit_brackets_broken"] == 0


async def test_the_audit_reports_wrong_brackets(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    board = await create_board_with_curve(world, wrong=5)
    found = await make_auditor(world).audit_column(board, 0)
    # The rank of the last knot is wrong, although the curve reports this rank as exact.
    assert [each.true_rank for each in found.broken] == [10]
    assert found.beyond_certificate
    assert world.meter.values["rankcurve_audits compared"] == [1]
    assert world.meter.values["rankcurve_audit_brackets_broken"] == [1]
    assert world.meter.values["rankcurve_audit_certificates_broken"] == [len(found.beyond_certificate)]
    assert world.meter.values["rankcurve_audit_certificate_ratio"] == [0] * 10
    assert "bracket_broken" in capsys.readouterr().out


async def test_a_caller_may_ask_for_fewer_owners_than_the_limit_and_never_for_more(world: World) -> None:
    board = await create_board_with_curve(world)
    assert len((await make_auditor(world).audit_column(board, 0, owners=3)).compared) == 3
    bounded = make_auditor(world, LIMITS.model_copy(update={"audit_owners_max": 4}))
    assert len((await bounded.audit_column(board, 0, owners=9)).compared) == 4
    with pytest.raises(NoCurveError):
        await make_auditor(world).audit_column(board, 1)


async def test_a_failing_store_is_reported_and_the_next_turn_comes(world: World) -> None:
    await create_board_with_curve(world)
    async with run_jobs(make_job(world)):
        world.store.failures.append(StoreBusyError("away"))
        await world.end_sleep(INTERVAL_S)
        await within(world.meter.events["rankcurve_audits failed"].get())
        await world.end_sleep(INTERVAL_S)
        await within(world.meter.events["rankcurve_audits compared"].get())
