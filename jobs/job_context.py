"""What every job works with.

The rule: time, sleep and chance reach a job through its constructor and from nowhere else.
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
    """The store, its open boards, and the identity, clocks and chance of this process."""

    store: Store
    open_boards: OpenBoards
    post_ids: PostIds
    holder: str  # names this process; different from every other one that ever worked on the store
    now_us: Callable[[], int]
    monotonic: Callable[[], float]
    sleep: Sleep
    rng: random.Random
