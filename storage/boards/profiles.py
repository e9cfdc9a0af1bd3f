"""Profiles of owners: a small JSON object (a name, an avatar) that responses can show beside an owner's rows.

A profile belongs to no board, and no ranking and no count depends on profiles.
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
    """Find the profiles of these owners as JSON texts, by owner. Leave out owners without a profile."""
    rows = yield _FIND.bind(owners=owners)
    return {row[0]: row[1] for row in rows}


def store_profile(owner: str, profile: str, *, now_us: int) -> Program[None]:
    yield _PUT.bind(owner=owner, profile=profile, updated_at=now_us)


def remove_profile(owner: str) -> Program[bool]:
    rows = yield _REMOVE.bind(owner=owner)
    return bool(rows[0][0])
