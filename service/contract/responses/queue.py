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

    `accepted` is how many posts the request had. `duplicates` is how many of these posts had been applied before to a
    period that is closed now. Such posts are not queued again.
    """

    accepted: int
    duplicates: int | UnsetType = UNSET


class PostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a post on a leaderboard.

    `status` is `pending` while the post waits in the queue. Afterwards it is the same status that a direct post has.
    `updated_at` and `stats` are those of the owner's row after the post. `error` says why the post was rejected.
    """

    post_id: str
    status: Literal["pending", "applied", "unchanged", "rejected"]
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class ShardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A shard of the queue, and the worker that has it.

    It has the number of waiting posts, the age of the oldest one, and the number of posts that were ever applied.
    """

    shard: int
    posts: int
    age_seconds: float
    applied: int
    worker: str | None


class QueueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The ingest queue. `workers` is how many workers run now, and `workers_max` is how many may run.

    `capacity` is how many posts the store applies per second, and `speed` is how many posts one worker applies per
    second. `workers_max` is calculated from both speeds. They show the measurements of the last calculation; before
    the first one they are null.
    """

    posts: int
    age_seconds: float
    workers: int
    workers_max: int
    capacity: int | None
    speed: int | None
    shards: list[ShardAnswer]
