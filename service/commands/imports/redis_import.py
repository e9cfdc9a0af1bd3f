"""Turns the members of a Redis sorted set into posts: a member is an owner, and its score replaces the owner's value.

The set is read with ZSCAN, which does not block Redis. The price is that a score that changes during the scan may be
copied in its old state, although no member that stays in the set is missed. So import again once Redis no longer
changes.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rankcurve.answers import Board, Column

from service.commands.imports.sending import Record, owner_fault, round_decimal
from service.commands.target import fail

if TYPE_CHECKING:
    from redis import Redis

TIMEOUT_S = 30.0
SCAN_COUNT = 1_000  # about how many members Redis returns at once


def read_members(url: str, key: str, column: Column, *, merge: bool, rounds: bool) -> Iterator[Record]:
    """Yield a record for each member. With `merge`, a score is merged like a post and never replaces a better value.

    End the command if Redis does not answer, or if the key holds no sorted set.
    """
    try:
        from redis import Redis
        from redis.exceptions import RedisError
    except ImportError:
        fail("--redis needs the package redis: pip install 'rankcurve[redis]'")
    place = f"{url.rpartition('@')[2]} {key}"  # without user and password
    try:
        # Members that are not UTF-8 become text with surrogates, which `owner_fault` rejects.
        with Redis.from_url(
            url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            protocol=2,  # which every version speaks: the third needs HELLO
            decode_responses=True,
            encoding_errors="surrogateescape",
        ) as redis:
            size, copied = redis.zcard(key), 0
            if not size:
                fail(f"{place}: there is no such key")
            for member, score in redis.zscan_iter(key, count=SCAN_COUNT):
                text = repr(score + 0.0)  # + 0.0 turns -0.0 into 0.0
                value = round_decimal(text, column.scale) if rounds else text
                post = {"owner": member, "stats" if merge else "set": {column.name: value}}
                copied += 1
                yield Record(f"member {member!a}", owner_fault(member) or _find_twin(redis, key, member) or post)
            if max(copied, redis.zcard(key)) < size:
                fail(f"{place} was emptied, renamed or replaced while it was copied, so copy it again")
    except (TypeError, AttributeError, LookupError, RecursionError):
        fail(f"{place}: this server answers otherwise than Redis")
    except (RedisError, ValueError) as cause:
        fail(f"{place}: {cause}")


def _find_twin(redis: "Redis", key: str, member: str) -> str | None:
    """Say why to reject a member whose name the set also has in another Unicode form. Return None if it has not.

    The service normalises owners. So both members would be one owner, and one score would replace the other.
    """
    for form in ("NFC", "NFD"):
        other = unicodedata.normalize(form, member)
        if other != member and redis.zscore(key, other) is not None:
            return f"the member {other!a} is the same owner after normalisation (NFC)"
    return None


def choose_column(board: Board, names: Sequence[str], *, merge: bool) -> Column:
    """Choose the column that the scores are posted to. End the command if the board has no such column."""
    if len(names) > 1:
        fail("a sorted set has one score for each member, so --column names one column")
    numbers = [each for each in board.columns if each.type != "text" and each.merge != "quotient"]
    found = next((each for each in numbers if (each.name == names[0] if names else each.ranked)), None)
    if found is None:
        fail(f"no column of numbers takes the scores; the leaderboard has {', '.join(each.name for each in numbers)}")
    if merge and found.merge not in ("max", "min"):
        fail(f"--merge needs a column of merge max or min, and {found.name} merges by {found.merge}")
    return found
