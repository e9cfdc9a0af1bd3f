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

    `accepted` is how many posts the request had. `duplicates` is how many of these were applied before, to a period
    that is now closed. Duplicates are not queued again.
    """

    accepted: int
    duplicates: int | UnsetType = UNSET


class PostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a post on a leaderboard.

    `status` is `pending` while the post waits in the queue, and afterwards the same status as for a direct post.
    `updated_at` and `stats` are those of the row after the post. `error` says why the post was rejected.
    """

    post_id: str
    status: Literal["pending", "applied", "unchanged", "rejected"]
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class ShardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A shard of the queue: how many posts wait, the age of the oldest, how many were ever applied, and the worker."""

    shard: int
    posts: int
    age_seconds: float
    applied: int
    worker: str | None


class QueueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The ingest queue. `workers` is how many workers run now, and `workers_max` is how many may run.

    `capacity` is how many posts the store applies per second, and `speed` how many one worker applies per second. They
    were measured when `workers_max` was last calculated from them; before that they are null.
    """

    posts: int
    age_seconds: float
    workers: int
    workers_max: int
    capacity: int | None
    speed: int | None
    shards: list[ShardAnswer]
