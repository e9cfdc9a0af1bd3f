"""Counts what an owner's posts have added within the last hour, for columns with the limit `gain_per_hour_max`.

Gains are counted by minute: what was added in each of the last 60 minutes and in the current one. So posts never add
more than the limit within any 60 minutes. An owner's row needs no lock of its own, because it is only changed by
transactions that change the owner's entry, and of two such transactions one waits for the other or loses the race.
"""

from collections.abc import Collection, Mapping

import msgspec

from querybuilder import col, delete, param, select
from storage.schema.placement import prepare_put_rows
from storage.schema.tables import GAINS
from storage.store import Program

MINUTE_US = 60_000_000
MINUTES = 60
KEPT_S = 60.0 * (MINUTES + 1)
Gains = dict[int, list[tuple[int, int]]]  # by column index: minutes since 1970, oldest first, each with its gain
GainKey = tuple[int, str]  # leaf key and owner
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Gains).decode


def sum_recent(gains: Gains, index: int, now_us: int) -> int:
    oldest = now_us // MINUTE_US - MINUTES
    return sum(gain for minute, gain in gains.get(index, ()) if minute >= oldest)


def add_gain(gains: Gains, index: int, gain: int, now_us: int) -> Gains:
    now, kept = now_us // MINUTE_US, dict[int, int]()
    for minute, earlier in [*gains.get(index, ()), (now, gain)]:
        if minute >= now - MINUTES:
            kept[minute] = kept.get(minute, 0) + earlier
    return {**gains, index: sorted(kept.items())}


def read_gains(leaf_keys: Collection[int], owners: Collection[str]) -> Program[dict[GainKey, Gains]]:
    """Read what these owners have gained on these leaves. Call this once the owners' rows are locked."""
    rows = yield _READ.bind(keys=[*leaf_keys], owners=[*owners])
    return {(key, owner): _decode(minutes) for key, owner, minutes in rows}


def store_gains(gains: Mapping[GainKey, Gains], now_us: int) -> Program[None]:
    yield _STORE.bind(rows=[(*key, now_us, _encode(each).decode()) for key, each in sorted(gains.items())])


def prune_gains(*, before_us: int, rows_max: int) -> Program[int]:
    """Delete the gains of owners who have gained nothing since `before_us`. Return how many rows were deleted."""
    old = select(col("leaf_key"), col("owner")).from_(GAINS).where(col("updated_at").lt(before_us)).limit(rows_max)
    rows = yield old.bind()
    for key, owner in rows:
        yield _PRUNE.bind(key=key, owner=owner, before_us=before_us)
    return len(rows)


_theirs = col("owner").in_(param("owners"))
_read = select(col("leaf_key"), col("owner"), col("minutes")).from_(GAINS)
_READ = _read.where(col("leaf_key").in_(param("keys")), _theirs).packed().prepared()
_STORE = prepare_put_rows(GAINS)
_PRUNE = (
    delete(GAINS)
    .where(col("leaf_key").eq(param("key")), col("owner").eq(param("owner")))
    .where(col("updated_at").lt(param("before_us")))
    .prepared()
)
