"""Test the number by which processes notice that their copy of a leaf is outdated."""

from dataclasses import replace
from itertools import product

from storage.boards.board_changes import change_spec
from storage.leaves.totals import COLUMNS_LIMIT, EPOCH, VERSIONS_LIMIT, state_of
from storage.records import BoardSpec, Gate, Leaf, Place, PredictorSpec, RefreshMethod, TierSpec, Ties
from tests.storage.deployment import ranked

SPEC = BoardSpec((ranked("xp"),), Ties.SHARED, PredictorSpec(10, 10, 60, RefreshMethod.AUTO))
CHANGES = 10_000


def state(epoch: int, columns: int, version: int, archived_us: int | None) -> int:
    spec = replace(SPEC, columns=tuple(ranked(f"c{number}") for number in range(columns)), tiers_version=version)
    return state_of(Leaf(1, "b", spec, Place(0), Gate(epoch=epoch, archived_us=archived_us)))


def test_leaves_that_differ_in_epoch_columns_tiers_or_archive_have_different_states() -> None:
    cases = list(product((1, 2, 3), (1, 2, 64), (0, 1, 2, VERSIONS_LIMIT - 1), (None, 5)))
    states = [state(*case) for case in cases]
    assert len(set(states)) == len(cases)
    assert [each // EPOCH for each in states] == [epoch for epoch, *_ in cases]
    assert COLUMNS_LIMIT > 64


def test_a_version_past_the_limit_changes_no_other_part_of_the_state() -> None:
    assert state(3, 2, VERSIONS_LIMIT + 7, None) == state(3, 2, 7, None)
    assert state(1 << 30, 64, 7, 5) < 1 << 63


def test_each_change_of_tiers_gives_a_state_of_its_own_and_a_confirmation_does_not() -> None:
    spec, seen = SPEC, set()
    for number in range(CHANGES):
        tiers = (TierSpec("gold", to_rank=1 + number % 2),)
        wanted = replace(SPEC, columns=(replace(SPEC.columns[0], tiers=tiers),))
        spec = change_spec(spec, wanted, ())
        assert change_spec(spec, wanted, ()) == spec
        seen.add(state_of(Leaf(1, "b", spec, Place(0))))
    assert len(seen) == CHANGES
