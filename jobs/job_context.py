"""The tools that every job receives.

A job gets its clocks, its sleep function and its random numbers only through its constructor.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from storage.posting.post_ids import PostIds
from storage.reads.open_boards import OpenBoards
from storage.store import Store

from .controls import Sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTools:
    """The store and its open boards, and the name, clocks, sleep function and random numbers of this process."""

    store: Store
    open_boards: OpenBoards
    post_ids: PostIds
    holder: str  # name of this process; no other process has ever used it on this store
    now_us: Callable[[], int]
    monotonic: Callable[[], float]
    sleep: Sleep
    rng: random.Random
