"""A meter that keeps what was reported, so that tests can look at it and wait for it.

A series is named by its family and the values of its labels, with blanks between: "rankcurve_audits failed".
"""

import asyncio
from collections import defaultdict

from storage.meter import Meter

CLEARED = -1.0  # stands among the values of a family without labels where its gauges were cleared


class RecordingMeter(Meter):
    def __init__(self) -> None:
        self.counts: defaultdict[str, float] = defaultdict(float)  # the sum of each counter
        self.gauges: dict[str, float] = {}
        self.values: defaultdict[str, list[float]] = defaultdict(list)  # all values that were added, set or observed
        self.events: defaultdict[str, asyncio.Queue[float]] = defaultdict(asyncio.Queue)  # the same, to wait for

    def _record(self, series: str, value: float) -> None:
        self.values[series].append(value)
        self.events[series].put_nowait(value)

    def add(self, name: str, amount: float = 1, *labels: str) -> None:
        assert amount >= 0
        series = " ".join((name, *labels))
        self.counts[series] += amount
        self._record(series, amount)

    add_from_any_thread = add

    def set(self, name: str, value: float, *labels: str) -> None:
        assert value >= 0
        series = " ".join((name, *labels))
        self.gauges[series] = value
        self._record(series, value)

    def observe(self, name: str, value: float, *labels: str) -> None:
        assert value >= 0
        self._record(" ".join((name, *labels)), value)

    def clear(self, name: str) -> None:
        self.gauges = {series: value for series, value in self.gauges.items() if series.partition(" ")[0] != name}
        self._record(name, CLEARED)

    def by_label(self, name: str) -> dict[str, float]:
        """Return the sums of a counter by its label. Leave out those that are 0."""
        head = f"{name} "
        return {key.removeprefix(head): count for key, count in self.counts.items() if key.startswith(head) and count}

    def read_connections(self, pool: str) -> tuple[float, ...]:
        """Return the lent connections of a pool, its waiting callers, and the limit of connections."""
        return tuple(self.gauges[f"rankcurve_store_connections_{each} {pool}"] for each in ("lent", "awaited", "limit"))
