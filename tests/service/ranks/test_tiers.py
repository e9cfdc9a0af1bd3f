"""Test which tier a rank has, against a model that lists all ranks of each tier."""

from decimal import ROUND_CEILING, Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.contract.responses.positions import Position
from service.ranks.tiers import Tiers
from storage.records import Best, ColumnKind, ColumnSpec, Merge, TierSpec

TOTAL_MAX = 400
LIMITS = st.one_of(
    st.builds(lambda rank: {"to_rank": rank}, st.integers(1, TOTAL_MAX)),
    st.builds(lambda units: {"to_percent": units / 10_000}, st.integers(1, 1_000_000)),
    st.builds(lambda value: {"value_scaled": value}, st.integers(-9, 9)),
)
SPECS = st.lists(LIMITS, max_size=6).map(
    lambda limits: tuple(TierSpec(f"t{number}", **limit) for number, limit in enumerate(limits))
)


def make_tiers(best: Best, *tiers: TierSpec) -> Tiers:
    return Tiers(ColumnSpec("xp", True, Merge.SUM, best, ColumnKind.NUMBER, 0, -100, 100, tiers=tiers))


def model(best: Best, tiers: tuple[TierSpec, ...], value: int, rank: int, total: int) -> str | None:
    """Return the first tier that fits. Compute with decimals, in which every percentage is exact."""
    for tier in tiers:
        if tier.to_percent is not None:
            fits = rank <= (total * Decimal(repr(tier.to_percent)) / 100).to_integral_value(ROUND_CEILING)
        elif tier.to_rank is not None:
            fits = rank in range(1, tier.to_rank + 1)
        else:
            assert tier.value_scaled is not None
            fits = (value - tier.value_scaled) * (1 if best is Best.HIGH else -1) >= 0
        if fits:
            return tier.name
    return None


@given(st.sampled_from(Best), SPECS, st.integers(-10, 10), st.integers(1, TOTAL_MAX), st.integers(0, TOTAL_MAX))
def test_an_entry_has_the_first_tier_that_fits(
    best: Best, tiers: tuple[TierSpec, ...], value: int, rank: int, total: int
) -> None:
    assert make_tiers(best, *tiers).find_tier(value, rank, total) == model(best, tiers, value, rank, total)


@given(st.sampled_from(Best), SPECS, st.integers(-10, 10), st.data())
def test_the_tier_of_a_position_is_uncertain_exactly_if_its_bracket_spans_several(
    best: Best, tiers: tuple[TierSpec, ...], value: int, data: st.DataObject
) -> None:
    low, rank, high = sorted(data.draw(st.lists(st.integers(1, 40), min_size=3, max_size=3)))
    total = data.draw(st.integers(high, 80))
    position = make_position(rank=rank, low=low, high=high, exact=low == high, total=total)
    make_tiers(best, *tiers).add_to_position(position, value)
    possible = {model(best, tiers, value, each, total) for each in range(low, high + 1)}
    assert position.tier == model(best, tiers, value, rank, total)
    assert (position.tier_certain is False) == (len(possible) > 1)


def make_position(**members: Any) -> Position:
    named: dict[str, Any] = {"column": "xp", "value": 0, "method": "curve", "percentile": 0.0, "as_of": "", **members}
    return Position(**named)


def test_a_share_is_rounded_up_and_never_by_an_error_of_floats() -> None:
    cases = [(5, 41, 3), (5, 40, 2), (0.07, 10_000, 7), (33.3333, 30, 10), (100, 7, 7), (0.0001, 1_000_000, 1)]
    for percent, total, last in cases:
        tiers = make_tiers(Best.HIGH, TierSpec("gold", to_percent=percent))
        ranks = [rank for rank in range(1, last + 3) if tiers.find_tier(0, rank, total)]
        assert ranks == list(range(1, last + 1)), (percent, total)


def test_only_shares_depend_on_how_many_entries_are_ranked() -> None:
    rank, share = TierSpec("a", to_rank=3), TierSpec("b", to_percent=3)
    assert not make_tiers(Best.HIGH, rank, TierSpec("c", value_scaled=3)).depend_on_total
    assert make_tiers(Best.HIGH, rank, share).depend_on_total


@given(st.sampled_from(Best), SPECS, st.lists(st.integers(-10, 10), max_size=40))
def test_the_rows_of_a_tier_lie_between_the_reach_of_the_tiers_before_it_and_its_own(
    best: Best, tiers: tuple[TierSpec, ...], values: list[int]
) -> None:
    sign, found = (-1 if best is Best.HIGH else 1), make_tiers(best, *tiers)
    ordered, total = sorted(values, key=lambda value: sign * value), len(values)

    def reaches(name: str, value: int, rank: int, *, included: bool) -> bool:
        last_rank, last_value = found.find_reach(name, total, included=included)
        return rank <= last_rank or (last_value is not None and sign * value <= sign * last_value)

    for value in ordered:
        rank = 1 + ordered.index(value)
        for name in found.names:
            inside = reaches(name, value, rank, included=True) and not reaches(name, value, rank, included=False)
            assert inside == (model(best, tiers, value, rank, total) == name)
