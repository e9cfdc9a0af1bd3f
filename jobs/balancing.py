"""How many free resources each region of a pool will need, and who gives them: pure, so that it can be proved.

    level    what keys asked for a second, an exponentially weighted average; what was refused was asked for too
    lately   what keys asked for a second between the last two looks; no demand is taken to be less
    trend    how the level changes a second, averaged in the same way (Holt's double smoothing)
    need     (what will be asked for - what will be over) within the horizon, never below 0
    target   need + a part of the slack; where there is too little for all needs, everyone gets the same part of its own

The rule: a lease that runs never moves, and nobody gives what it needs itself. Small shortages are left alone, so that
resources don't go to and fro.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import msgspec

FLOOR_RATIO = 0.05  # of the mean demand, that of a region which nobody asks: the first who does finds something
MOVED_BELOW_RATIO = 0.7  # of its target, below which a region gets some


@dataclass(frozen=True, slots=True)
class BalanceLimits:
    """The bounds of balancing; each is a setting of the same name."""

    balance_interval_s: float
    balance_horizon_s: float
    balance_half_life_s: float
    balance_moves_max: int  # a run and pool
    balance_step_rows_max: int  # a transaction


class Measured(NamedTuple):
    """What a look at a region finds."""

    at_us: int
    total: int
    leased: int  # leases that run
    acquired: int  # so far, as the next one
    refused: int

    @property
    def available(self) -> int:
        """What is free, or over."""
        return self.total - self.leased


class Load(msgspec.Struct, frozen=True, array_like=True):
    """What a region was asked for, as it is stored from one look to the next."""

    at_us: int
    leased: int
    acquired: int
    refused: int
    level: float = 0.0  # a second
    trend: float = 0.0  # of the level, a second
    freed: float = 0.0  # leases that were over or given back, a second
    # Between the last two looks:
    asked_lately: float = 0.0  # a second
    refused_lately: bool = False

    @property
    def measured(self) -> bool:
        """Whether there were two looks."""
        return self.level > 0 or self.freed > 0


class RegionState(NamedTuple):
    """A region as a plan sees it."""

    available: int  # free, or over and not liberated yet
    load: Load


class Move(NamedTuple):
    """Available resources that change their region."""

    source: str
    target: str
    resources: int


def first_look(found: Measured) -> Load:
    """A region that nothing is known of yet."""
    return Load(found.at_us, found.leased, found.acquired, found.refused)


def observed(load: Load, found: Measured, half_life_s: float) -> Load:
    """The load after another look; the same where no time has passed."""
    passed_s = (found.at_us - load.at_us) / 1e6
    if passed_s <= 0:
        return load
    acquired = max(0, found.acquired - load.acquired)
    refused = max(0, found.refused - load.refused)
    asked_per_s = (acquired + refused) / passed_s
    # What was leased, and what was acquired since, less what is leased now, is over.
    freed_per_s = max(0, load.leased + acquired - found.leased) / passed_s
    new = 1 - 0.5 ** (passed_s / half_life_s)
    counted, lately = (found.at_us, found.leased, found.acquired, found.refused), (asked_per_s, refused > 0)
    if not load.measured:
        return Load(*counted, asked_per_s, 0.0, freed_per_s, *lately)
    expected = max(0.0, load.level + load.trend * passed_s)
    level = expected + new * (asked_per_s - expected)
    trend = load.trend + new * ((level - load.level) / passed_s - load.trend)
    freed = load.freed + new * (freed_per_s - load.freed)
    return Load(*counted, level, trend, freed, *lately)


def demand(load: Load, horizon_s: float) -> float:
    """Return what will be asked for within the horizon: by the averages, and no less than lately."""
    return max(load.asked_lately, load.level + load.trend * horizon_s / 2) * horizon_s


def need(load: Load, horizon_s: float) -> float:
    """Return how many of its available resources a region will use up within the horizon.

    A region that refused somebody can't live on what becomes free there: it needs all that was asked for lately.
    """
    used = demand(load, horizon_s) - load.freed * horizon_s
    return max(0.0, used, load.asked_lately * horizon_s if load.refused_lately else 0.0)


def headroom(load: Load, available: int, horizon_s: float) -> int:
    """How many resources a region will have left at the horizon, if nothing moves."""
    return max(0, int(available - (demand(load, horizon_s) - load.freed * horizon_s)))


def targets(regions: Mapping[str, RegionState], horizon_s: float) -> dict[str, float]:
    """What each region should have available; together what they have."""
    everything = sum(state.available for state in regions.values())
    needs = {region: need(state.load, horizon_s) for region, state in regions.items()}
    needed = sum(needs.values())
    if needed >= everything:
        return {region: everything * each / needed if needed else 0.0 for region, each in needs.items()}
    weights = {region: demand(state.load, horizon_s) for region, state in regions.items()}
    floor = FLOOR_RATIO * sum(weights.values()) / len(weights)
    weighed = sum(max(floor, weight) for weight in weights.values())
    if not weighed:
        return {region: float(state.available) for region, state in regions.items()}
    slack = everything - needed
    return {region: needs[region] + slack * max(floor, weights[region]) / weighed for region in regions}


def plan(regions: Mapping[str, RegionState], limits: BalanceLimits) -> list[Move]:
    """The moves that bring regions which will be short to their targets, from those above their own."""
    wanted = targets(regions, limits.balance_horizon_s)  # where nobody asks, what they have
    # A shortage that is left alone is one that ends in a refusal where there is too little for all needs.
    needed = sum(need(state.load, limits.balance_horizon_s) for state in regions.values())
    is_scarce = needed >= sum(state.available for state in regions.values())
    below_ratio = 1.0 if is_scarce else MOVED_BELOW_RATIO
    short = {
        region: int(wanted[region]) - state.available
        for region, state in regions.items()
        if state.available < below_ratio * wanted[region]
    }
    spare = {region: state.available - ceil(wanted[region]) for region, state in regions.items()}
    givers = sorted((region for region in spare if spare[region] > 0), key=lambda region: -spare[region])
    left = limits.balance_moves_max
    moves: list[Move] = []
    for target in sorted(short, key=lambda region: -short[region]):
        for source in givers:
            resources = min(short[target], spare[source], left)
            if resources > 0:
                moves.append(Move(source, target, resources))
                short[target] -= resources
                spare[source] -= resources
                left -= resources
    return moves
