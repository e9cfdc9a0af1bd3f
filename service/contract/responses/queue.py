"""The answers about queued posts: their acceptance, their outcome, and the state of the ingest queue."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from service.contract.problems import ProblemDocument

from .boards import Stats
from .curves import Time


class Accepted(msgspec.Struct, frozen=True):
    """Posts that are durable in the ingest queue; workers apply them within seconds.

    `duplicates`: how many of them go to closed periods and were applied before; they are not queued again.
    """

    accepted: int
    duplicates: int | UnsetType = UNSET


class PostState(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a post on a leaderboard: `pending` in the queue, or as posting answers it.

    `updated_at` and `stats`: what the board held after it; `error`: why it was rejected.
    """

    post_id: str
    status: Literal["pending", "applied", "unchanged", "rejected"]
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class ShardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the queue: what waits there, since when, what was ever applied, and the worker that has it."""

    shard: int
    posts: int
    age_seconds: float
    applied: int
    worker: str | None


class QueueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The ingest queue. `workers` of at most `workers_max` work now.

    `capacity` and `speed`: posts a second of the store and of one worker, when `workers_max` was last worked out from
    them; null before.
    """

    posts: int
    age_seconds: float
    workers: int
    workers_max: int
    capacity: int | None
    speed: int | None
    shards: list[ShardAnswer]
