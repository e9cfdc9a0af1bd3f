"""Handlers and routes of leases: lease a resource for a key, show and end the key's lease, read the lease journal."""

from msgspec import UNSET

from service.context import Context
from service.contract.keys import Role
from service.contract.lease_messages import AskLease, LeaseAnswer, LeaseEventLine, parse_lease_key
from service.contract.post_bodies import NDJSON_TYPE
from service.contract.problems import ProblemError
from service.contract.queries import LeaseJournalQuery
from service.contract.routes import Call, Reply, Route
from service.contract.values import format_us, to_micros
from service.streams.long_answers import encode_in_turns
from storage.leases.lease_journal import PublishedLeaseEvent, lease_journal
from storage.leases.lease_records import Grant, LeaseRequest, Release

TAG = "Leases"
_LEASE = "/v1/leases/{client_id}/{pool_id}/{key}"


async def ask_lease(context: Context, call: Call) -> LeaseAnswer:
    body: AskLease = call.body
    key = parse_lease_key(body.key, pointer="/key")
    expires_at_us, lease_us = _how_long(context, body)
    given = await context.lease_batcher.request_lease(
        LeaseRequest(body.client_id, body.pool_id, key, body.region, expires_at_us, lease_us)
    )
    return _answer(given)


async def get_lease(context: Context, call: Call) -> LeaseAnswer:
    return _answer(await context.lease_batcher.find_lease(**call.path))


async def give_back(context: Context, call: Call) -> None:
    await context.lease_batcher.release_lease(Release(**call.path))


async def get_lease_journal(context: Context, call: Call) -> Reply:
    query: LeaseJournalQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    async with context.long_answers.hold_turn():
        events = await context.store.read(lambda: lease_journal.read_page(query.after, limit=limit), heavy=True)
        return Reply(await encode_in_turns(map(_line, events)), media_type=NDJSON_TYPE)


def _how_long(context: Context, body: AskLease) -> tuple[int | None, int]:
    expires, seconds = body.lease_expires, body.lease_seconds
    if (expires is UNSET) == (seconds is UNSET):
        detail = "give either lease_expires or lease_seconds"
        raise ProblemError("bad_request", detail, pointer="/lease_expires")
    most_s = context.settings.lease_s_max
    if seconds is not UNSET:
        if seconds > most_s:
            raise ProblemError("bad_value", f"a lease lasts at most {most_s:.15g} s", pointer="/lease_seconds")
        return None, max(1, round(seconds * 1e6))
    expires_at_us = to_micros(expires)  # type: ignore[arg-type]
    # This check only refuses a lease that would be much too long. The clock of the store decides when the lease ends.
    if expires_at_us > context.now_us() + most_s * 1e6:
        raise ProblemError("bad_value", f"a lease lasts at most {most_s:.15g} s", pointer="/lease_expires")
    return expires_at_us, 0


def _answer(given: Grant) -> LeaseAnswer:
    return LeaseAnswer(
        resource=given.resource,
        key=given.key,
        lease_expires=format_us(given.expires_at_us),
        expires_in=(given.expires_at_us - given.now_us) / 1e6,
        version=given.version,
        acquired=given.acquired,
        region=given.region,
    )


def _line(event: PublishedLeaseEvent) -> LeaseEventLine:
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


LEASES = [
    Route("POST", "/v1/leases", ask_lease, Role.WRITER, "ask_lease", TAG, has_own_metrics=True, body=AskLease),
    Route("GET", _LEASE, get_lease, Role.WRITER, "lease", TAG),
    Route("DELETE", _LEASE, give_back, Role.WRITER, "give_back_lease", TAG),
    Route("GET", "/v1/leases/journal", get_lease_journal, Role.WRITER, "lease_journal", TAG, query=LeaseJournalQuery),
]  # fmt: skip
