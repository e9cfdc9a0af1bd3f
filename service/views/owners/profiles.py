"""Handlers of profiles. A profile is a JSON object about an owner, such as a name and a picture.

A profile is stored as it was sent, without white space. `add_profiles` adds profiles to rows of other answers.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from service.context import Context
from service.contract.problems import ProblemError
from service.contract.responses.boards import EntryAnswer, RankedEntry
from service.contract.responses.journal import ProfileAnswer
from service.contract.routes import Call
from service.contract.strict_json import decode_strictly
from storage.boards import profiles

_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_COMPACT = -1


async def put_profile(context: Context, call: Call) -> ProfileAnswer:
    owner, most = call.path["owner"], context.settings.profile_bytes_max
    decode_strictly(call.body, _OBJECT)
    text = msgspec.json.format(call.body, indent=_COMPACT)
    if len(text) > most:
        raise ProblemError("body_too_large", f"a profile has at most {most} bytes")
    await context.store.write(lambda: profiles.store_profile(owner, text.decode(), now_us=context.now_us()))
    return ProfileAnswer(owner, Raw(text))


async def get_profile(context: Context, call: Call) -> ProfileAnswer:
    owner = call.path["owner"]
    found = await context.store.read(lambda: profiles.find_profiles([owner]))
    if owner not in found:
        raise ProblemError("no_profile", f"{owner!r} has no profile")
    return ProfileAnswer(owner, Raw(found[owner].encode()))


async def remove_profile(context: Context, call: Call) -> None:
    owner = call.path["owner"]
    if not await context.store.write(lambda: profiles.remove_profile(owner)):
        raise ProblemError("no_profile", f"{owner!r} has no profile")


async def add_profiles(context: Context, rows: Sequence[EntryAnswer | RankedEntry]) -> None:
    """Set `profile` of each row; None if the owner has no profile. Read the profiles of all rows in one statement."""
    owners = list(dict.fromkeys(row.owner for row in rows))
    if not owners:
        return
    found = await context.store.read(lambda: profiles.find_profiles(owners))
    for row in rows:
        text = found.get(row.owner)
        row.profile = None if text is None else Raw(text.encode())
