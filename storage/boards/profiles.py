"""Stores owners' profiles, small JSON objects (a name, an avatar) that responses can show beside an owner's rows.

A profile belongs to no board, and neither rankings nor counts depend on it.
"""

from collections.abc import Sequence

from querybuilder import col, delete, param, select
from storage.schema.placement import prepare_put
from storage.schema.tables import PROFILES
from storage.store import Program

_found = select(col("owner"), col("profile")).from_(PROFILES).where(col("owner").in_(param("owners")))
_FIND = _found.packed().prepared()
_PUT = prepare_put(PROFILES)
_REMOVE = delete(PROFILES).where(col("owner").eq(param("owner"))).prepared()


def find_profiles(owners: Sequence[str]) -> Program[dict[str, str]]:
    """Find these owners' profiles as JSON text, keyed by owner. Owners without a profile are left out."""
    rows = yield _FIND.bind(owners=owners)
    return {row[0]: row[1] for row in rows}


def store_profile(owner: str, profile: str, *, now_us: int) -> Program[None]:
    yield _PUT.bind(owner=owner, profile=profile, updated_at=now_us)


def remove_profile(owner: str) -> Program[bool]:
    rows = yield _REMOVE.bind(owner=owner)
    return bool(rows[0][0])
