"""Stores API keys, each as a hash with a role, and records which owners' player tokens were voided.

A key's secret is shown once, when the key is created, and never stored. Player tokens are not stored at all. When an
owner's tokens are voided, the time is kept until all earlier tokens would have expired anyway.
"""

from dataclasses import astuple, dataclass

from querybuilder import ASC, Lock, asc, col, count, count_if, delete, insert, max_, param, seek, select, update
from storage.errors import CatalogFullError, OpsKeyNeededError, UnknownKeyError
from storage.schema.placement import prepare_put
from storage.schema.tables import API_KEYS, TOKEN_VOIDS
from storage.store import Program


@dataclass(frozen=True, slots=True)
class StoredKey:
    id: str
    name: str
    role: str
    hash: str
    created_at_us: int
    revoked_at_us: int | None


# How many keys were ever created, and how many of them were revoked. Rows are never deleted, so both counts only grow.
KeyCounts = tuple[int, int]
VoidsSign = tuple[int, int]  # how many owners have void tokens, and the newest time; changes with every voiding
VOIDS_MAX = 100_000  # owners with void tokens; every process holds all of them in memory
OPS = "ops"
_COLUMNS = ("id", "name", "role", "hash", "created_at", "revoked_at")  # in the order of the fields of `StoredKey`


def list_keys(*, limit: int, after: tuple[int, str] = (0, "")) -> Program[list[StoredKey]]:
    """List at most `limit` keys, including revoked ones, ordered by creation time.

    `after` identifies the last key on the previous page by its creation time, in microseconds since 1970, and its id.
    """
    listed = select(*map(col, _COLUMNS)).from_(API_KEYS)
    past = seek(("created_at", ASC, param("created_at")), ("id", ASC, param("id")))
    page = listed.where(past).order_by(asc(col("created_at")), asc(col("id"))).limit(limit)
    rows = yield page.bind(created_at=after[0], id=after[1])
    return [StoredKey(*row) for row in rows]


def count_keys() -> Program[KeyCounts]:
    rows = yield select(count(), count_if(col("revoked_at").not_null())).from_(API_KEYS).bind()
    created, revoked = rows[0]
    return created, revoked or 0


def add_key(key: StoredKey, *, keys_max: int, keep_ops: bool = False) -> Program[None]:
    """Store a new key.

    Raises:
        CatalogFullError: the store already holds `keys_max` keys.
        OpsKeyNeededError: `keep_ops` is set, and no valid key would then have the role ops.
    """
    created, _ = yield from count_keys()
    if created >= keys_max:
        raise CatalogFullError(f"the store already holds {keys_max} keys, the limit set by keys_max")
    if keep_ops and key.role != OPS and not (yield from _hold_ops_keys()):
        raise OpsKeyNeededError("the first key needs the role ops: without it nobody could create or revoke keys")
    yield insert(API_KEYS).values(**dict(zip(_COLUMNS, astuple(key), strict=True))).bind()


def revoke_key(key_id: str, *, now_us: int) -> Program[None]:
    """Revoke a key from now on. A key that was revoked before keeps its original revocation time.

    Raises:
        UnknownKeyError: no key has that id.
        OpsKeyNeededError: this is the last valid key with the role ops.
    """
    found = yield select(col("id")).from_(API_KEYS).where(col("id").eq(param("id"))).bind(id=key_id)
    if not found:
        raise UnknownKeyError(f"no key {key_id!r}")
    if (yield from _hold_ops_keys()) == [key_id]:
        raise OpsKeyNeededError(f"{key_id} is the last key with the role ops: create another one first")
    yield (
        update(API_KEYS)
        .set(revoked_at=now_us)
        .where(col("id").eq(param("id")), col("revoked_at").is_null())
        .bind(id=key_id)
    )


def _hold_ops_keys() -> Program[list[str]]:
    """List the ids of the valid keys with the role ops, and lock them so that no other transaction can revoke them."""
    valid = select(col("id")).from_(API_KEYS).where(col("role").eq(OPS), col("revoked_at").is_null())
    rows = yield valid.locked(Lock.UPDATE, asc(col("id"))).bind()
    return [row[0] for row in rows]


_VOIDS_SIGN = select(count(), max_(col("voided_at"))).from_(TOKEN_VOIDS).prepared()
_VOIDS = select(col("owner_hash"), col("voided_at")).from_(TOKEN_VOIDS).limit(VOIDS_MAX).prepared()
_VOID = prepare_put(TOKEN_VOIDS)
_PRUNE_VOIDS = delete(TOKEN_VOIDS).where(col("voided_at").lt(param("before_us"))).prepared()


def read_voids_sign() -> Program[VoidsSign]:
    [[rows, newest_us]] = yield _VOIDS_SIGN.bind()
    return rows, newest_us or 0


def list_voids() -> Program[dict[str, int]]:
    """Map each affected owner's hash to the time at which that owner's earlier tokens became void."""
    rows = yield _VOIDS.bind()
    return {row[0]: row[1] for row in rows}


def void_tokens(owner_hash: str, *, now_us: int, token_us_max: int) -> Program[None]:
    """Void all tokens of an owner that were issued until now. No token is valid for more than `token_us_max`.

    Raises CatalogFullError if VOIDS_MAX owners have void tokens that have not expired.
    """
    yield from _hold_ops_keys()  # one voiding at a time, so that the newest time grows with each, and the sign changes
    yield _PRUNE_VOIDS.bind(before_us=now_us - token_us_max)
    rows, newest_us = yield from read_voids_sign()
    if rows >= VOIDS_MAX:
        raise CatalogFullError(f"the tokens of {rows} owners are void already; replace the keys that sign tokens")
    yield _VOID.bind(owner_hash=owner_hash, voided_at=max(now_us, newest_us + 1))
