"""The table of all commands on keys: how many arguments each takes, how it runs, and its answer for an unknown key."""

from functools import partial
from typing import Any, NamedTuple

from service.contract.api_keys import Role

from . import board_commands as alone
from . import sorted_set_posts as posts
from . import sorted_set_reads as reads
from .wire import Answer, Map

NO_MAXIMUM = 1_000_000
LONG = 100  # the weight of a command whose answer may have as many members as a range


class Command(NamedTuple):
    """A command on a key, which is its first argument.

    `kind` says how the command runs. A post shares a transaction with the posts next to it in a pipeline, and a read
    runs at the same time as the reads next to it. A command of the kind `alone` waits until those before it have run.
    """

    run: Any  # a `PostCommand`, `ReadCommand` or `LoneCommand`, by `kind`
    kind: str  # `post`, `read` or `alone`
    least: int  # the fewest arguments, without the name
    most: int = NO_MAXIMUM
    absent: Answer = None  # the answer if the board is unknown, or a function that makes it from the arguments
    role: Role = Role.READER
    makes: bool = False  # whether the command creates a board if the key is unknown
    text: bool = False  # whether the key names a hash
    weight: int = 1  # how many single reads the command counts as, because its answer may be long


def _post(run: posts.PostCommand, least: int, most: int = NO_MAXIMUM, **facts: Any) -> Command:
    return Command(run, "post", least, most, role=Role.WRITER, **facts)


def _read(run: Any, least: int, most: int = NO_MAXIMUM, absent: Answer = None, **facts: Any) -> Command:
    return Command(run, "read", least, most, absent, **facts)


def _alone(
    run: alone.LoneCommand, least: int, most: int = NO_MAXIMUM, absent: Answer = 0, role: Role = Role.OPS
) -> Command:
    return Command(run, "alone", least, most, absent, role, weight=LONG)


def _nothing_for_each(args: list[bytes]) -> list[None]:
    return [None] * (len(args) - 1)


_BY_SCORE, _REV = b"BYSCORE", b"REV"

COMMANDS: dict[bytes, Command] = {
    b"ZADD": _post(posts.add, 3, makes=True),
    b"ZINCRBY": _post(posts.increment, 3, 3, makes=True),
    b"ZREM": _post(posts.remove, 2, absent=0),
    b"HSET": _post(posts.set_fields, 3, makes=True, text=True),
    b"HMSET": _post(posts.set_fields_quietly, 3, makes=True, text=True),
    b"HDEL": _post(posts.remove_fields, 2, absent=0, text=True),
    b"ZSCORE": _read(reads.read_score, 2, 2),
    b"ZMSCORE": _read(reads.read_scores, 2, absent=_nothing_for_each, weight=LONG),
    b"ZRANK": _read(reads.read_rank, 2, 3),
    b"ZREVRANK": _read(partial(reads.read_rank, ascending=False), 2, 3),
    b"ZCARD": _read(reads.count_members, 1, 1, 0),
    b"ZCOUNT": _read(reads.count_span, 3, 3, 0),
    b"ZRANGE": _read(reads.read_range, 3, absent=[], weight=LONG),
    b"ZREVRANGE": _read(lambda parts, args: reads.read_range_of_old(parts, args, _REV), 3, 4, [], weight=LONG),
    b"ZRANGEBYSCORE": _read(
        lambda parts, args: reads.read_range_of_old(parts, args, _BY_SCORE), 3, absent=[], weight=LONG
    ),
    b"ZREVRANGEBYSCORE": _read(
        lambda parts, args: reads.read_range_of_old(parts, args, _BY_SCORE, _REV), 3, absent=[], weight=LONG
    ),
    b"ZSCAN": _read(reads.scan, 2, absent=[b"0", []], weight=LONG),
    b"HGET": _read(reads.read_field, 2, 2, text=True),
    b"HMGET": _read(reads.read_fields, 2, absent=_nothing_for_each, text=True, weight=LONG),
    b"HGETALL": _read(reads.read_hash, 1, 1, Map(), text=True, weight=LONG),
    b"HEXISTS": _read(reads.has_field, 2, 2, 0, text=True),
    b"EXISTS": _alone(alone.count_existing, 1, role=Role.READER),
    b"TYPE": _alone(alone.tell_type, 1, 1, role=Role.READER),
    b"TTL": _alone(alone.read_time_left, 1, 1, role=Role.READER),
    b"DEL": _alone(alone.delete_keys, 1),
    b"UNLINK": _alone(alone.delete_keys, 1),
    b"EXPIRE": _alone(alone.expire, 2),
    b"EXPIREAT": _alone(alone.expire_at, 2),
    b"RENAME": _alone(alone.refuse_rename, 2, 2),
    b"RENAMENX": _alone(alone.refuse_rename, 2, 2),
    b"ZREMRANGEBYRANK": _alone(alone.remove_window, 3, 3),
    b"ZREMRANGEBYSCORE": _alone(alone.remove_span, 3, 3),
    b"ZPOPMIN": _alone(alone.pop_least, 1, 2, []),
    b"ZPOPMAX": _alone(alone.pop_greatest, 1, 2, []),
    b"ZUNIONSTORE": _alone(alone.store_union, 3),
    b"ZINTERSTORE": _alone(alone.store_intersection, 3),
}
