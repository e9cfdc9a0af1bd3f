"""API keys as stored: hashed, with a role. The secret is shown once, when a key is made, and never kept."""

from __future__ import annotations

from dataclasses import dataclass

from querybuilder import Dialect, asc, col, insert, param, select, update

from .errors import TooManyKeys, UnknownKey
from .migrate import KEYS
from .store import Program


@dataclass(frozen=True, slots=True)
class StoredKey:
    """One API key's row."""

    id: str
    name: str
    role: str
    hash: str
    created_at_us: int
    revoked_at_us: int | None


def list_keys(dialect: Dialect, *, keys_max: int) -> Program[list[StoredKey]]:
    """All keys, revoked ones included, by time of creation."""
    columns = (col(name) for name in ("id", "name", "role", "hash", "created_at", "revoked_at"))
    query = select(*columns).from_(KEYS).order_by(asc(col("created_at")), asc(col("id"))).limit(keys_max)
    rows = yield query.build(dialect)
    return [StoredKey(*row) for row in rows]


def add_key(dialect: Dialect, key: StoredKey, *, keys_max: int) -> Program[None]:
    """Store a new key.

    Raises:
        TooManyKeys: the store holds `keys_max` already.
    """
    if len((yield from list_keys(dialect, keys_max=keys_max))) >= keys_max:
        raise TooManyKeys(f"the store holds {keys_max} keys, as many as keys_max allows")
    yield (
        insert(KEYS)
        .values(
            id=key.id,
            name=key.name,
            role=key.role,
            hash=key.hash,
            created_at=key.created_at_us,
            revoked_at=key.revoked_at_us,
        )
        .build(dialect)
    )


def revoke_key(dialect: Dialect, key_id: str, *, now_us: int) -> Program[None]:
    """Make a key useless from now on; a revoked key stays revoked at its first time.

    Raises:
        UnknownKey: there is none with that id.
    """
    found = yield select(col("id")).from_(KEYS).where(col("id").eq(param("id"))).build(dialect, id=key_id)
    if not found:
        raise UnknownKey(f"no key {key_id!r}")
    yield (
        update(KEYS)
        .set(revoked_at=now_us)
        .where(col("id").eq(param("id")), col("revoked_at").is_null())
        .build(dialect, id=key_id)
    )
