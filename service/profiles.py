"""Profiles: what an owner is called and looks like, stored as it came and added to rows that are read.

The rule: the rows of an answer get their profiles in one statement, whatever their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec import Raw, UnsetType

from storage.profiles import profiles

from .context import Context
from .journal_answers import ProfileAnswer
from .problems import Problem
from .routes import Call, Reply
from .strict_json import decode

_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_COMPACT = -1


class Named(Protocol):
    """A row of an answer."""

    owner: str
    profile: Raw | UnsetType | None


N = TypeVar("N", bound=Named)


async def put_profile(context: Context, call: Call) -> ProfileAnswer:
    """`PUT /v1/owners/{owner}/profile`."""
    owner, most = call.path["owner"], context.settings.profile_bytes_max
    decode(call.body, _OBJECT)
    text = msgspec.json.format(call.body, indent=_COMPACT)
    if len(text) > most:
        raise Problem("body_too_large", f"a profile has at most {most} bytes")
    statements = profiles(context.store.dialect)
    await context.store.write(lambda: statements.put(owner, text.decode(), now_us=context.now_us()))
    return ProfileAnswer(owner, Raw(text))


async def get_profile(context: Context, call: Call) -> ProfileAnswer:
    """`GET /v1/owners/{owner}/profile`."""
    owner = call.path["owner"]
    found = await context.store.read(lambda: profiles(context.store.dialect).find([owner]))
    if owner not in found:
        raise Problem("no_profile", f"{owner!r} has no profile")
    return ProfileAnswer(owner, Raw(found[owner].encode()))


async def remove_profile(context: Context, call: Call) -> Reply:
    """`DELETE /v1/owners/{owner}/profile`."""
    owner = call.path["owner"]
    if not await context.store.write(lambda: profiles(context.store.dialect).remove(owner)):
        raise Problem("no_profile", f"{owner!r} has no profile")
    return Reply(None, status=204)


async def add_profiles(context: Context, rows: Sequence[N]) -> None:
    """Give each row its owner's profile, null where there is none."""
    owners = list(dict.fromkeys(row.owner for row in rows))
    if not owners:
        return
    found = await context.store.read(lambda: profiles(context.store.dialect).find(owners))
    for row in rows:
        text = found.get(row.owner)
        row.profile = None if text is None else Raw(text.encode())
