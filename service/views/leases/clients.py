"""Handlers of clients, who own the pools of resources."""

from __future__ import annotations

from msgspec import UNSET

from service.context import Context
from service.contract.cursors import ClientCursor
from service.contract.lease_messages import ClientAnswer, ClientList, PutClient
from service.contract.queries import ListQuery
from service.contract.routes import Call, Reply
from service.contract.values import format_us
from storage.leases.lease_clients import Client, lease_clients


async def put_client(context: Context, call: Call) -> Reply:
    """Handle `PUT /v1/clients/{client_id}`."""
    body: PutClient = call.body
    name = None if body.name is UNSET else body.name
    client, made = await context.store.write(
        lambda: lease_clients.create_or_rename_client(call.path["client_id"], name, now_us=context.now_us())
    )
    return Reply(_answer(client), status=201 if made else 200)


async def get_client(context: Context, call: Call) -> ClientAnswer:
    """Handle `GET /v1/clients/{client_id}`."""
    return _answer(await context.store.read(lambda: lease_clients.read_client(call.path["client_id"])))


async def get_clients(context: Context, call: Call) -> ClientList:
    """Handle `GET /v1/clients`."""
    query: ListQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    after = "" if query.cursor is None else context.cursors.decode_cursor(query.cursor, ClientCursor).after
    clients = await context.store.read(lambda: lease_clients.list_clients(after=after, limit=limit + 1))
    shown = clients[:limit]
    more = len(clients) > limit
    next_page = context.cursors.encode_cursor(ClientCursor("clients", shown[-1].client_id)) if more else None
    return ClientList([_answer(client) for client in shown], next_page)


async def remove_client(context: Context, call: Call) -> Reply:
    """Handle `DELETE /v1/clients/{client_id}`."""
    await context.store.write(lambda: lease_clients.drop_client(call.path["client_id"], now_us=context.now_us()))
    return Reply(None, status=204)


def _answer(client: Client) -> ClientAnswer:
    return ClientAnswer(
        client_id=client.client_id, name=client.name, pools=client.pools, created_at=format_us(client.created_at_us)
    )
