"""The tools that every job receives. Jobs get clocks, sleep functions and random numbers only through them."""

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
    store: Store
    open_boards: OpenBoards
    post_ids: PostIds
    holder: str  # unique name of this process; no other process ever used this name on this store
    now_us: Callable[[], int]
    monotonic: Callable[[], float]
    sleep: Sleep
    rng: random.Random
