"""Test rebalance plans. If a plan takes resources that a region itself needs, that region has a shortage next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.settings import LeaseSettings
from jobs.leases.rebalance import (
    Load,
    RegionState,
    compute_targets,
    forecast_headroom,
    forecast_need,
    plan_transfers,
    update_load,
)

LIMITS = LeaseSettings(balance_interval_s=300).model_copy(
    update={
        "balance_horizon_s": 600,
        "balance_half_life_s": 600,
        "balance_moves_max": 100_000,
        "balance_step_rows_max": 1_000,
    }
)
HORIZON_S = LIMITS.balance_horizon_s

rates = st.floats(0, 1_000)
loads = st.builds(
    Load,
    *[st.just(0)] * 4,
    level=rates,
    trend=st.floats(-1, 1),
    freed=rates,
    asked_lately=rates,
    refused_lately=st.booleans(),
)


states = st.builds(RegionState, st.integers(0, 1_000_000), loads)
regions = st.dictionaries(st.sampled_from(("eu", "us", "asia", "africa", "sea")), states, min_size=2)


def load(level: float, freed: float = 0, trend: float = 0) -> Load:
    return Load(0, 0, 0, 0, level, trend, freed)


@given(regions)
def test_a_plan_transfers_only_available_resources_and_leaves_each_region_its_need(
    found: dict[str, RegionState],
) -> None:
    moves = plan_transfers(found, LIMITS)
    after = {region: state.available for region, state in found.items()}
    given_away = dict.fromkeys(found, 0)
    for move in moves:
        assert move.source != move.target
        assert move.resources > 0
        after[move.source] -= move.resources
        after[move.target] += move.resources
        given_away[move.source] += move.resources
    assert sum(after.values()) == sum(state.available for state in found.values())
    wanted = compute_targets(found, HORIZON_S)
    for region, state in found.items():
        assert given_away[region] <= state.available
        if given_away[region]:
            assert after[region] >= wanted[region] - 1e-6
        if any(move.target == region for move in moves):
            assert after[region] <= wanted[region] + 1e-6, "no region gets more than its share"


@given(regions)
def test_targets_share_out_all_resources_and_cover_needs_if_there_are_enough(found: dict[str, RegionState]) -> None:
    wanted, everything = compute_targets(found, HORIZON_S), sum(state.available for state in found.values())
    needs = {region: forecast_need(state.load, HORIZON_S) for region, state in found.items()}
    assert all(each >= 0 for each in wanted.values())
    assert sum(wanted.values()) == pytest.approx(everything)
    if 0 < sum(needs.values()) < everything:
        assert all(wanted[region] >= needs[region] - 1e-6 for region in found)


@given(regions)
def test_a_plan_that_was_carried_out_leaves_no_next_plan(found: dict[str, RegionState]) -> None:
    moves = plan_transfers(found, LIMITS)
    if sum(move.resources for move in moves) >= LIMITS.balance_moves_max:
        return
    after = dict(found)
    for move in moves:
        for region, change in ((move.source, -move.resources), (move.target, move.resources)):
            after[region] = RegionState(after[region].available + change, after[region].load)
    assert sum(move.resources for move in plan_transfers(after, LIMITS)) <= len(found) ** 2, (
        "only rounding may leave moves"
    )


@given(st.lists(st.tuples(st.integers(1, 3_600), st.integers(0, 10_000), st.integers(0, 10_000)), max_size=20))
def test_averages_never_become_negative_whatever_was_measured(seen: list[tuple[int, int, int]]) -> None:
    known = Load(0, 0, 0, 0)
    at_us = acquired = leased = 0
    for passed_s, more, over in seen:
        at_us += passed_s * 1_000_000
        acquired += more
        leased = max(0, leased + more - over)
        known = update_load(known, Load(at_us, leased, acquired, 0), LIMITS.balance_half_life_s)
        assert known.level >= 0 or known.level == pytest.approx(0)
        assert known.freed >= 0
        assert forecast_headroom(known, 10**6 - leased, HORIZON_S) >= 0


def test_a_steady_load_is_measured_as_it_is_refused_requests_included() -> None:
    known = Load(0, 0, 0, 0)
    for minute in range(1, 61):
        at_us, acquired, refused = minute * 60_000_000, minute * 60, minute * 30
        known = update_load(known, Load(at_us, 120, acquired, refused), LIMITS.balance_half_life_s)
    assert known.level == pytest.approx(1.5)
    assert known.trend == pytest.approx(0, abs=1e-6)
    assert known.freed == pytest.approx(1, rel=0.05)


def test_two_measurements_at_one_time_change_nothing() -> None:
    known = Load(5, 0, 0, 0)
    assert update_load(known, Load(5, 3, 3, 0), 600) == known


def test_a_growing_region_gets_its_future_need_before_it_is_exhausted() -> None:
    found = {"eu": RegionState(5_000, load(0.1, 0.1)), "us": RegionState(300, load(2, 1, 0.001))}
    [move] = plan_transfers(found, LIMITS)
    assert (move.source, move.target) == ("eu", "us")
    assert 300 + move.resources > forecast_need(found["us"].load, HORIZON_S) > 300


def test_each_region_gets_the_same_part_of_its_need_if_there_is_too_little() -> None:
    found = {"eu": RegionState(600, load(2)), "us": RegionState(0, load(1))}
    assert compute_targets(found, HORIZON_S) == pytest.approx({"eu": 400, "us": 200})
    assert plan_transfers(found, LIMITS) == [("eu", "us", 200)]


def test_the_operators_shares_stay_while_no_key_asks() -> None:
    found = {"eu": RegionState(100, load(0)), "us": RegionState(0, load(0))}
    assert plan_transfers(found, LIMITS) == []


def test_a_region_that_refused_keys_gets_what_they_asked_for_lately() -> None:
    calm = load(0.01, freed=2)
    rushed = update_load(calm, Load(300_000_000, 10, 60, 90), LIMITS.balance_half_life_s)
    assert forecast_need(rushed, HORIZON_S) == pytest.approx(150 / 300 * HORIZON_S)
    assert plan_transfers({"eu": RegionState(1_000, load(0)), "us": RegionState(0, rushed)}, LIMITS)[0].resources >= 300


def test_a_shortage_draws_everything_that_regions_without_need_have() -> None:
    found = {"eu": RegionState(15, load(0)), "us": RegionState(85, load(1))}
    assert plan_transfers(found, LIMITS) == [("eu", "us", 15)]
