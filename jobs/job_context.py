"""The objects that every job receives.

They include clocks, sleep functions and random numbers, so that tests can replace all of these.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from config.settings import Settings
from storage.boards.catalog import Catalog
from storage.curves.curve_book import CurveBook
from storage.leases.work_leases import WorkLeases
from storage.meter import Meter
from storage.reads.open_boards import OpenBoards
from storage.store import Store

from .controls import JobControls, Sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    store: Store
    catalog: Catalog
    book: CurveBook
    open_boards: OpenBoards
    leases: WorkLeases
    holder: str  # unique name of this process; no other process ever used this name on this store
    limits: Settings
    meter: Meter
    now_us: Callable[[], int]
    monotonic: Callable[[], float]
    sleep: Sleep  # operators can't pause this sleep, because leases are renewed even while a job is paused
    rng: random.Random
    controls: JobControls | None = None  # lets operators pause jobs; None: operators can't
    record_span: Callable[[str, float], None] | None = None  # adds a span (name, seconds) to traces; None: no tracing

    def make_sleep(self, job: str) -> Sleep:
        """Create the function with which one of a job's tasks sleeps. Operators can end or extend each sleep."""
        return self.sleep if self.controls is None else self.controls.make_sleep(job)
