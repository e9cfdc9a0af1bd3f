"""Handlers and routes of player tokens: issue a token, and void all earlier tokens of an owner.

Tokens are not stored, so a single one can't be revoked. Instead, an operator can void all of an owner's tokens.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from service.context import Context
from service.contract.api_keys import Role
from service.contract.problems import ProblemError
from service.contract.requests import IssueToken
from service.contract.routes import Call, Reply, Route
from service.contract.values import COLUMN_PATTERN, DECIMAL_PATTERN, Time, format_us, parse_matching, parse_owner
from storage.boards.api_keys import void_tokens
from storage.errors import StorageError

if TYPE_CHECKING:
    from service.contract.player_tokens import PlayerTokens

_TAG = "Posting"


class IssuedToken(msgspec.Struct, frozen=True):
    """A player token that was just issued. `id` is its claim `jti`."""

    token: str
    id: str
    expires_at: Time


async def issue_token(context: Context, call: Call) -> Reply:
    body: IssueToken = call.body
    for name in body.limits:
        parse_matching(name, pattern=COLUMN_PATTERN, what="a column name", pointer="/limits")
    limits = {name: _parse_limit(raw, f"/limits/{name}") for name, raw in body.limits.items()}
    rights = {"boards": body.boards, "families": body.families, "limits": limits}
    owner = parse_owner(body.owner, pointer="/owner")
    issued = _tokens_of(context).issue(owner, body.posts, rights, expires_in_s=body.expires_in)
    text, token_id, expires_us = issued
    return Reply(IssuedToken(text, token_id, format_us(expires_us)), status=201, headers={"Cache-Control": "no-store"})


def _parse_limit(raw: msgspec.Raw, pointer: str) -> str:
    text = bytes(raw).decode("ascii", "replace").strip('"')
    if re.fullmatch(DECIMAL_PATTERN[1:-1], text) is None:
        raise ProblemError("bad_value", "a limit is a decimal number", pointer=pointer)
    return text


async def remove_tokens(context: Context, call: Call) -> None:
    tokens = _tokens_of(context)
    owner_hash, now_us = tokens.hash_owner(call.path["owner"]), context.now_us()
    await context.store.write(lambda: void_tokens(owner_hash, now_us=now_us, token_us_max=tokens.lifetime_us_max))
    with suppress(StorageError):  # other processes, and this one if it fails, read it within a second
        await context.key_watch.poll_keys()


def _tokens_of(context: Context) -> PlayerTokens:
    if context.keyring.tokens is None:
        raise ProblemError("unsupported", "player tokens are not configured (player_token_keys, player_token_jwks)")
    return context.keyring.tokens


TOKENS = [
    Route("POST", "/v1/tokens", issue_token, Role.WRITER, "issue_token", _TAG, body=IssueToken, by_fronts=True),
    Route("DELETE", "/v1/owners/{owner}/tokens", remove_tokens, Role.OPS, "void_tokens", _TAG,
        acts=("tokens.voided",)),
]  # fmt: skip
