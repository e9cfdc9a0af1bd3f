"""Three regions of one pool for three days: keys that come and go, a news spike, and operators who drain a region.

The world is the same for all contestants. One seed decides which keys ask at which minute; refusals do not change that.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

REGIONS = ("asia", "eu", "us")
MINUTES = 3 * 24 * 60
RESOURCES = 1_200
LEASE_MINUTES = 20.0  # mean length of a lease
_BASE_PER_MINUTE = 16.0  # keys that request a lease in a region per minute, on average over a day
_SWING = 0.85
# (start in minutes, length in minutes, added demand): for an hour from 14:00 on the second day, the demand is 2.6
# times the usual demand.
_SPIKE = (24 * 60 + 14 * 60, 60, 1.6)
_SPIKE_REGION, DRAINED_REGION = "eu", "us"
_RISE_MINUTES = 15
# (start, end) of the drain in minutes: from 19:00 to 23:00 on the third day, when the drained region is busiest.
DRAIN = (2 * 24 * 60 + 19 * 60, 2 * 24 * 60 + 23 * 60)
DRAINED = 150  # resources that operators remove from the region as they become free, and add again after the drain


@dataclass(frozen=True, slots=True)
class Arrival:
    """A key that asks for a lease once."""

    key: str
    region: str
    minutes: float  # how long the key wants the resource, in minutes
    returns: bool  # whether the key gives the resource back; otherwise it lets the lease expire


def demand_per_minute(region: str, minute: int) -> float:
    """Return how many keys request a lease in a region in that minute, on average."""
    hours = minute / 60 - 8 * REGIONS.index(region)
    usual = _BASE_PER_MINUTE * (1 + _SWING * math.sin(2 * math.pi * hours / 24))
    begun, lasts, more = _SPIKE
    if region == _SPIKE_REGION and begun <= minute < begun + lasts + _RISE_MINUTES:
        rise = min(1.0, (minute - begun) / _RISE_MINUTES, (begun + lasts + _RISE_MINUTES - minute) / _RISE_MINUTES)
        return usual * (1 + more * rise)
    return usual


def draw_arrivals() -> Iterator[list[Arrival]]:
    """Yield, for each minute, the keys that ask for a lease in that minute."""
    rng = random.Random(2026)
    number = 0
    for minute in range(MINUTES):
        coming: list[Arrival] = []
        for region in REGIONS:
            due = rng.expovariate(1)
            mean = demand_per_minute(region, minute)
            while due < mean:
                due += rng.expovariate(1)
                number += 1
                minutes = min(120.0, max(1.0, rng.expovariate(1 / LEASE_MINUTES)))
                coming.append(Arrival(f"k{number}", region, minutes, returns=rng.random() < 0.5))
        yield coming
