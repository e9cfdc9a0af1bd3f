"""Clients over HTTP: whose pools there are.

The rule: as for pools, operators change and writers look.
"""

from __future__ import annotations

from msgspec import UNSET

from storage.lease_clients import Client, LeaseClients, lease_clients

from ..context import Context
from ..cursors import ClientsPlace
from ..queries import ListQuery
from ..routes import Call, Reply
from ..values import format_us
from .wire import ClientAnswer, ClientList, PutClient


async def put_client(context: Context, call: Call) -> Reply:
    """`PUT /v1/clients/{client_id}`."""
    body: PutClient = call.body
    name = None if body.name is UNSET else body.name
    client, made = await context.store.write(
        lambda: _clients(context).put(call.path["client_id"], name, now_us=context.now_us())
    )
    return Reply(_answer(client), status=201 if made else 200)


async def get_client(context: Context, call: Call) -> ClientAnswer:
    """`GET /v1/clients/{client_id}`."""
    return _answer(await context.store.read(lambda: _clients(context).existing(call.path["client_id"])))


async def get_clients(context: Context, call: Call) -> ClientList:
    """`GET /v1/clients`."""
    query: ListQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    after = "" if query.cursor is None else context.cursors.read(query.cursor, ClientsPlace).after
    clients = await context.store.read(lambda: _clients(context).listed(after=after, limit=limit + 1))
    shown = clients[:limit]
    more = len(clients) > limit
    next_page = context.cursors.write(ClientsPlace("clients", shown[-1].client_id)) if more else None
    return ClientList([_answer(client) for client in shown], next_page)


async def remove_client(context: Context, call: Call) -> Reply:
    """`DELETE /v1/clients/{client_id}`."""
    await context.store.write(lambda: _clients(context).drop(call.path["client_id"], now_us=context.now_us()))
    return Reply(None, status=204)


def _clients(context: Context) -> LeaseClients:
    return lease_clients(context.store.dialect)


def _answer(client: Client) -> ClientAnswer:
    return ClientAnswer(
        client_id=client.client_id, name=client.name, pools=client.pools, created_at=format_us(client.created_at_us)
    )
