"""Leases over HTTP: asked for, looked at and given back by their keys, and the journal of all of them.

The rule: how long a lease lasts is between the caller and the store's clock; this process's own is never asked.
"""

from __future__ import annotations

from msgspec import UNSET

from storage.lease_journal import LeaseEvent, lease_journal
from storage.lease_records import Ask, GiveBack, Given

from ..context import Context
from ..journal_lane import encode_in_turns
from ..post_bodies import NDJSON_TYPE
from ..problems import Problem
from ..routes import Call, Reply
from ..values import format_us, micros
from .wire import AskLease, LeaseAnswer, LeaseEventLine, LeaseJournalQuery, parse_key


async def ask_lease(context: Context, call: Call) -> LeaseAnswer:
    """`POST /v1/leases`."""
    body: AskLease = call.body
    key = parse_key(body.key, pointer="/key")
    expires_at_us, lease_us = _how_long(context, body)
    given = await context.lease_desk.ask(Ask(body.client_id, body.pool_id, key, body.region, expires_at_us, lease_us))
    return _answer(given)


async def get_lease(context: Context, call: Call) -> LeaseAnswer:
    """`GET /v1/leases/{client_id}/{pool_id}/{key}`."""
    return _answer(await context.lease_desk.look(*_names(call)))


async def give_back(context: Context, call: Call) -> Reply:
    """`DELETE /v1/leases/{client_id}/{pool_id}/{key}`."""
    await context.lease_desk.give_back(GiveBack(*_names(call)))
    return Reply(None, status=204)


async def journal(context: Context, call: Call) -> Reply:
    """`GET /v1/leases/journal`."""
    query: LeaseJournalQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    rows = lease_journal(context.store.dialect)
    async with context.journal_lane.taken():
        events = await context.store.read(lambda: rows.page(query.after, limit=limit), heavy=True)
        return Reply(await encode_in_turns(map(_line, events)), media_type=NDJSON_TYPE)


def _names(call: Call) -> tuple[str, str, str]:
    return call.path["client_id"], call.path["pool_id"], call.path["key"]


def _how_long(context: Context, body: AskLease) -> tuple[int | None, int]:
    expires, seconds = body.lease_expires, body.lease_seconds
    if (expires is UNSET) == (seconds is UNSET):
        detail = "a lease lasts until lease_expires or for lease_seconds: one of them is needed"
        raise Problem("bad_request", detail, pointer="/lease_expires")
    most_s = context.settings.lease_s_max
    if seconds is not UNSET:
        if seconds > most_s:
            raise Problem("bad_value", f"a lease lasts at most {most_s:g} s", pointer="/lease_seconds")
        return None, max(1, round(seconds * 1e6))
    expires_at_us = micros(expires)  # type: ignore[arg-type]
    # By this process's clock: it is a bound on what makes sense, not a part of any lease.
    if expires_at_us > context.now_us() + most_s * 1e6:
        raise Problem("bad_value", f"a lease lasts at most {most_s:g} s", pointer="/lease_expires")
    return expires_at_us, 0


def _answer(given: Given) -> LeaseAnswer:
    return LeaseAnswer(
        resource=given.resource,
        key=given.key,
        lease_expires=format_us(given.expires_at_us),
        expires_in=(given.expires_at_us - given.now_us) / 1e6,
        version=given.version,
        acquired=given.acquired,
        region=given.region,
    )


def _line(event: LeaseEvent) -> LeaseEventLine:
    return LeaseEventLine(
        seq=event.number,
        at=format_us(event.at_us),
        kind=event.kind,
        client_id=event.client_id,
        pool_id=event.pool_id,
        resource=event.resource,
        key=event.key,
        region=event.region,
        version=event.version,
        lease_expires=format_us(event.expires_at_us) if event.expires_at_us else None,
    )
