"""Handlers and routes with which operators create, list and revoke API keys.

A key appears only in the answer to the request that creates it, and never in a log, a cache or a list.
"""

from contextlib import suppress
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.context import Context
from service.contract.api_keys import Role, key_facts, make_api_key
from service.contract.queries import ListQuery
from service.contract.requests import Reason
from service.contract.routes import Call, Reply, Route
from service.contract.values import KEY_NAME_PATTERN, Time, matching
from storage.boards.api_keys import add_key, list_keys, revoke_key
from storage.errors import StorageError

NAME_CHARS_MAX = 200
_TAG = "Access"

RoleName = Literal["reader", "writer", "ops"]
KeyName = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX), matching(KEY_NAME_PATTERN)]


class PostKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An API key to create. `name` says whom the key is for, and `role` what callers may do with it."""

    name: KeyName
    role: RoleName
    reason: Reason | None = None


class KeyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An API key without its text. `revoked_at` is null while the key is valid."""

    id: str
    name: str
    role: RoleName
    created_at: Time
    revoked_at: Time | None


class CreatedKey(KeyAnswer, frozen=True, kw_only=True):
    """An API key that was just created. `key` is the text to send in requests. It is never shown again."""

    key: str


class KeyList(msgspec.Struct, frozen=True):
    """A page of API keys, revoked keys included, in the order of their creation. `next` is null on the last page."""

    keys: list[KeyAnswer]
    next: str | None


async def post_key(context: Context, call: Call) -> Reply:
    body: PostKey = call.body
    key, text = make_api_key(body.name, body.role, context.now_us())
    call.detail = {"id": key.id, "role": body.role}
    await context.store.write(lambda: add_key(key, keys_max=context.settings.keys_max, keep_ops=True))
    await _apply(context)
    created = CreatedKey(key=text, **key_facts(key))
    return Reply(created, status=201, headers={"Cache-Control": "no-store"})


async def get_keys(context: Context, call: Call) -> KeyList:
    query: ListQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    after = context.cursors.find_start(query.cursor, "keys", (-1, ""))
    rows = await context.store.read(lambda: list_keys(after=after, limit=limit + 1))
    shown, next_page = context.cursors.cut_page(rows, limit, "keys", lambda last: (last.created_at_us, last.id))
    return KeyList([KeyAnswer(**key_facts(row)) for row in shown], next_page)


async def remove_key(context: Context, call: Call) -> None:
    await context.store.write(lambda: revoke_key(call.path["id"], now_us=context.now_us()))
    await _apply(context)


async def _apply(context: Context) -> None:
    """Make this process read the changed API keys now. If that fails, the key watch reads them within a second."""
    with suppress(StorageError):
        await context.key_watch.poll_keys()


KEYS = [
    Route("POST", "/v1/keys", post_key, Role.OPS, "create_key", _TAG, body=PostKey, acts=("key.created",)),
    Route("GET", "/v1/keys", get_keys, Role.OPS, "keys", _TAG, query=ListQuery),
    Route("DELETE", "/v1/keys/{id}", remove_key, Role.OPS, "revoke_key", _TAG, acts=("key.revoked",)),
]  # fmt: skip
