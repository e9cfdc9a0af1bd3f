"""Stores the acts of operators, and lists them and the hidden owners.

If each handler wrote the audit trail itself, it would have gaps. So a route names its acts, and `record_acts` gives its
handler a store whose first transaction that changes something also stores the act. A request that changes nothing
leaves no act. A post with `set` carries its act (`storage.posting`), and `service.monitoring` stores the act of an
operation on a job.
"""

import unicodedata
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw

from service.context import Context
from service.contract.queries import ActQuery, ActsQuery, HiddenQuery
from service.contract.responses.acts import ActAnswer, ActList, HiddenList, HiddenOwner
from service.contract.routes import Answer, Call, Route
from service.contract.values import format_us, parse_owner
from storage.boards.acts import Act, StoredAct, list_acts, list_hidden, record_act
from storage.store import Program, Store, count_changed

T = TypeVar("T")


def record_acts(route: Route) -> Route:
    """Wrap a route so that each request that changes something stores its act, unless the route has no acts."""
    if not route.acts:
        return route
    handler, first = route.handler, route.acts[0]

    @wraps(handler)
    async def handle(context: Context, call: Call) -> Answer:
        call.act = first
        store = _RecordingStore(context.store, call, context.now_us)
        return await handler(replace(context, store=cast(Store, store)), call)

    query = ActQuery if route.query is None and route.body is None else route.query
    return replace(route, handler=handle, query=query)


class _RecordingStore:
    """A store that adds a request's act to the first transaction that changes something, and then forgets the act."""

    def __init__(self, store: Store, call: Call, now_us: Callable[[], int]) -> None:
        self._store, self._call, self._now_us = store, call, now_us

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def at(self, partition: int) -> Any:
        store = self._store.at(partition)
        return self if store is self._store else _RecordingStore(store, self._call, self._now_us)

    async def write(self, program: Callable[[], Program[T]]) -> T:
        if self._call.act is None:
            return await self._store.write(program)

        def recording() -> Program[tuple[T, int]]:
            result, changed = yield from count_changed(program())
            if changed:
                yield from record_act(_make_act(self._call, self._now_us()))
            return result, changed

        result, changed = await self._store.write(recording)
        if changed:
            self._call.act = None
        return result


def _make_act(call: Call, now_us: int) -> Act:
    path, query = dict(call.path), call.query
    owner, board = path.pop("owner", None) or getattr(query, "owner", None), path.pop("board", None)
    detail = {**path, **call.detail}
    reason = getattr(call.body, "reason", None) or getattr(query, "reason", None)
    assert call.act is not None
    return Act(
        now_us,
        call.act,
        call.identity.stored_key,
        None if owner is None else parse_owner(owner),
        board,
        reason or None,
        msgspec.json.encode(detail).decode() if detail else None,
    )


async def get_acts(context: Context, call: Call) -> ActList:
    query: ActsQuery = call.query
    owner = None if query.owner is None else parse_owner(query.owner, pointer="owner")
    board = None if query.board is None else unicodedata.normalize("NFC", query.board)
    limit = query.limit or context.settings.page_entries_default
    of = msgspec.json.encode(("acts", owner, board, query.key)).decode()
    before = context.cursors.find_start(query.cursor, of, "")
    found = await context.store.read(
        lambda: list_acts(before=before, limit=limit + 1, owner=owner, board=board, key=query.key)
    )
    shown, following = context.cursors.cut_page(found, limit, of, lambda last: last.id)
    return ActList([_answer(each) for each in shown], following)


def _answer(stored: StoredAct) -> ActAnswer:
    act, detail = stored.act, stored.act.detail
    named = act.key, act.owner, act.board, act.reason, None if detail is None else Raw(detail.encode())
    return ActAnswer(stored.id, format_us(act.at_us), act.act, *named)


async def get_hidden_owners(context: Context, call: Call) -> HiddenList:
    query: HiddenQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    after = context.cursors.find_start(query.cursor, "hidden", "")
    found = await context.store.read(lambda: list_hidden(after=after, limit=limit + 1))
    shown, following = context.cursors.cut_page(found, limit, "hidden", lambda last: last.owner)
    owners = [
        HiddenOwner(each.owner or "", format_us(each.at_us), each.key, each.reason, each.act == "owner.shadowed")
        for each in shown
    ]
    return HiddenList(owners, following)
