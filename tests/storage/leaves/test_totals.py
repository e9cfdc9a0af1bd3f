"""Test the text by which processes notice that their copy of a leaf is outdated."""

from dataclasses import replace
from itertools import product

from storage.boards.board_changes import change_spec
from storage.records import BoardSpec, Gate, Leaf, Place, PredictorSpec, RefreshMethod, TierSpec, Ties
from tests.storage.deployment import ranked

SPEC = BoardSpec((ranked("xp"),), Ties.SHARED, PredictorSpec(10, 10, 60, RefreshMethod.AUTO))
CHANGES = 10_000


def edition(epoch: int, columns: int, version: int, archived_us: int | None) -> str:
    spec = replace(SPEC, columns=tuple(ranked(f"c{number}") for number in range(columns)), settings_version=version)
    return Leaf(1, "b", spec, Place(0), Gate(epoch=epoch, archived_us=archived_us)).edition


def test_leaves_that_differ_in_epoch_columns_tiers_or_archive_have_different_editions() -> None:
    cases = list(product((1, 2, 3, 11), (1, 2, 64), (0, 1, 2, 12), (None, 5)))
    assert len({edition(*case) for case in cases}) == len(cases)


def test_each_change_of_tiers_gives_an_edition_of_its_own_and_a_confirmation_does_not() -> None:
    spec, seen = SPEC, set()
    for number in range(CHANGES):
        tiers = (TierSpec("gold", to_rank=1 + number % 2),)
        wanted = replace(SPEC, columns=(replace(SPEC.columns[0], tiers=tiers),))
        spec = change_spec(spec, wanted, ())
        assert change_spec(spec, wanted, ()) == spec
        seen.add(Leaf(1, "b", spec, Place(0)).edition)
    assert len(seen) == CHANGES
