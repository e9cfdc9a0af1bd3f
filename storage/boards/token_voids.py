"""Owners whose earlier player tokens are void. Rows are deleted when those tokens would have expired anyway."""

from querybuilder import col, count, delete, max_, param, select
from storage.errors import CatalogFullError
from storage.schema.placement import prepare_put
from storage.schema.tables import TOKEN_VOIDS
from storage.store import Program

VOIDS_MAX = 100_000  # every process holds all of them in memory
VoidsSign = tuple[int, int]  # how many rows there are, and the newest time; changes with every row that is stored

_SIGN = select(count(), max_(col("voided_at"))).from_(TOKEN_VOIDS).prepared()
_ALL = select(col("owner_hash"), col("voided_at")).from_(TOKEN_VOIDS).limit(VOIDS_MAX).prepared()
_PUT = prepare_put(TOKEN_VOIDS)
_PRUNE = delete(TOKEN_VOIDS).where(col("voided_at").lt(param("before_us"))).prepared()


def read_sign() -> Program[VoidsSign]:
    [[rows, newest_us]] = yield _SIGN.bind()
    return rows, newest_us or 0


def list_voids() -> Program[dict[str, int]]:
    """Return by hash of an owner when the earlier tokens of this owner became void."""
    rows = yield _ALL.bind()
    return {row[0]: row[1] for row in rows}


def void_tokens(owner_hash: str, *, now_us: int, token_us_max: int) -> Program[None]:
    """Void all tokens of an owner that were issued until now. No token is valid for more than `token_us_max`.

    Raises CatalogFullError if VOIDS_MAX owners have void tokens that have not expired.
    """
    yield _PRUNE.bind(before_us=now_us - token_us_max)
    rows, newest_us = yield from read_sign()
    if rows >= VOIDS_MAX:
        raise CatalogFullError(f"the tokens of {rows} owners are void already; replace the keys that sign tokens")
    yield _PUT.bind(owner_hash=owner_hash, voided_at=max(now_us, newest_us + 1))
