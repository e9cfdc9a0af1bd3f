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

    `duplicates` is how many of them go to closed periods and were applied before; those are not queued again.
    """

    accepted: int
    duplicates: int | UnsetType = UNSET


class PostState(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a post on a leaderboard: `pending` in the queue, or the status that direct posting answers.

    `updated_at` and `stats` are those of the row after the post. `error` says why the post was rejected.
    """

    post_id: str
    status: Literal["pending", "applied", "unchanged", "rejected"]
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class ShardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the queue: how many posts wait and for how long, how many were ever applied, and its worker."""

    shard: int
    posts: int
    age_seconds: float
    applied: int
    worker: str | None


class QueueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The ingest queue. At most `workers_max` workers run; `workers` are running now.

    `capacity` and `speed` are the posts a second of the store and of one worker, measured when `workers_max` was last
    calculated from them; null before that.
    """

    posts: int
    age_seconds: float
    workers: int
    workers_max: int
    capacity: int | None
    speed: int | None
    shards: list[ShardAnswer]
