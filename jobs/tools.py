"""What every job works with. The rule: time, sleep and chance come in with it and from nowhere else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from storage.boards import OpenBoards
from storage.post_ids import PostIds
from storage.store import Store

from .runner import Sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTools:
    """The store, what is open of it, and the process that works."""

    store: Store
    open_boards: OpenBoards
    post_ids: PostIds
    holder: str  # this process, told from every other one that ever worked on the store
    now_us: Callable[[], int]
    monotonic: Callable[[], float]
    sleep: Sleep
    rng: random.Random
