"""Handlers and routes for events, and for the webhooks that receive them. A secret's text is shown only once."""

import base64
import secrets
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.context import Context
from service.contract.api_keys import Role
from service.contract.post_bodies import NDJSON_TYPE
from service.contract.problems import ProblemError, clip_text
from service.contract.queries import EventsQuery, ListQuery
from service.contract.requests import Reason
from service.contract.routes import Call, Reply, Route
from service.contract.values import WATCHED_PATTERN, Time, format_us, matching
from service.streams.long_answers import encode_in_turns
from service.webhook_sender import SECRET_BYTES, SECRET_PREFIX, find_fault, show_grant
from storage.events import event_log, webhooks
from storage.events.event_log import Event
from storage.events.webhooks import Webhook
from storage.store import Program

_TAG = "Events"
_WEBHOOK = "/v1/webhooks/{webhook}"
EventType = Literal[
    "board.created", "board.closed", "league.closed", "grants.made", "grant.claimed", "top.changed", "board.archived"
]
BoardsNamed = Annotated[str, Meta(min_length=1, max_length=320), matching(WATCHED_PATTERN)]


class EventLine(msgspec.Struct, frozen=True):
    """An event. `seq` grows by one with each event of the store.

    Only `grant.claimed` has `grant`, the id of the grant, and `owner`, who is null after an erasure.
    """

    seq: int
    at: Time
    type: EventType
    board: str
    grant: str | UnsetType = UNSET
    owner: str | UnsetType | None = UNSET


class PutWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A webhook: the address that receives events, and which ones."""

    url: Annotated[str, Meta(min_length=1, max_length=2_000)]
    events: Annotated[list[EventType], Meta(max_length=20)] = []
    """The types of events that are sent; empty: all. There is `top.changed` only where a webhook names it."""
    boards: Annotated[list[BoardsNamed], Meta(max_length=100)] = []
    """Ids of leaderboards, or beginnings of ids with `*` at the end, such as `arena:*`; empty: all leaderboards."""
    reason: Reason | None = None


class WebhookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook, and how far its deliveries have come."""

    id: str
    url: str
    events: Sequence[str]
    boards: Sequence[str]
    created_at: Time
    state: Literal["active", "failing", "paused"]
    """Paused: deliveries failed for three days. They continue after a request to resume them."""
    delivered: int
    """The number of the last event that the receiver got, or that was not for it."""
    failures: int
    """Failed attempts since the last delivery."""
    failing_since: Time | None
    next_attempt: Time | None
    last_error: str | None
    secret: str | UnsetType = UNSET
    """The secret that signs deliveries. Only the request that makes it shows it."""


class WebhookList(msgspec.Struct, frozen=True):
    """A page of webhooks, by id. `next` is null on the last page."""

    webhooks: list[WebhookAnswer]
    next: str | None


async def get_events(context: Context, call: Call) -> Reply:
    query: EventsQuery = call.query
    limit = query.limit or context.settings.page_entries_default

    def program() -> Program[tuple[list[Event], int | None]]:
        return (yield from event_log.read_events(query.after, limit=limit)), (yield from event_log.find_oldest())

    async with context.long_answers.hold_turn():
        events, oldest = await context.store.read(program, heavy=True)
        if query.after and oldest is not None and query.after < oldest - 1:
            raise ProblemError("journal_pruned", f"the oldest event that is kept is {oldest}", pointer="after")
        lines = (
            EventLine(each.number, format_us(each.at_us), each.type, each.board_id, **show_grant(each))  # type: ignore[arg-type]
            for each in events
        )
        return Reply(await encode_in_turns(lines), media_type=NDJSON_TYPE)


async def put_webhook(context: Context, call: Call) -> Reply:
    body: PutWebhook = call.body
    if (fault := find_fault(body.url, context.settings.webhook_hosts)) is not None:
        raise ProblemError("bad_value", f"no events can be sent to {clip_text(body.url)!r}: {fault}", pointer="/url")
    secret, webhook_id = _make_secret(), call.path["webhook"]

    def program() -> Program[tuple[Webhook, bool]]:
        made = yield from webhooks.put_webhook(
            webhook_id, body.url, body.events, body.boards, secret=secret, now_us=context.now_us()
        )
        call.act = "webhook.created" if made[1] else "webhook.changed"
        return made

    webhook, is_new = await context.store.write(program)
    return _reply(webhook, secret if is_new else UNSET, status=201 if is_new else 200)


async def get_webhook(context: Context, call: Call) -> WebhookAnswer:
    return _answer(await context.store.read(lambda: webhooks.find_webhook(call.path["webhook"])))


async def get_webhooks(context: Context, call: Call) -> WebhookList:
    query: ListQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    after = context.cursors.find_start(query.cursor, "webhooks", "")
    rows = await context.store.read(lambda: webhooks.list_webhooks(after, limit + 1))
    shown, next_page = context.cursors.cut_page(rows, limit, "webhooks", lambda last: last.id)
    return WebhookList([_answer(each) for each in shown], next_page)


async def remove_webhook(context: Context, call: Call) -> None:
    await context.store.write(lambda: webhooks.delete_webhook(call.path["webhook"]))


async def rotate_secret(context: Context, call: Call) -> Reply:
    secret, now_us, webhook = _make_secret(), context.now_us(), call.path["webhook"]
    changed = await context.store.write(lambda: webhooks.change_webhook(webhook, lambda it: it.rotate(secret, now_us)))
    return _reply(changed, secret)


async def resume_webhook(context: Context, call: Call) -> WebhookAnswer:
    webhook = call.path["webhook"]
    return _answer(await context.store.write(lambda: webhooks.change_webhook(webhook, Webhook.resume)))


async def test_webhook(context: Context, call: Call) -> Reply:
    webhook = call.path["webhook"]
    return _reply(await context.store.write(lambda: webhooks.change_webhook(webhook, Webhook.ask_test)), status=202)


def _make_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def _reply(webhook: Webhook, secret: str | UnsetType = UNSET, *, status: int = 200) -> Reply:
    headers = None if secret is UNSET else {"Cache-Control": "no-store"}
    return Reply(_answer(webhook, secret), status=status, headers=headers)


def _answer(webhook: Webhook, secret: str | UnsetType = UNSET) -> WebhookAnswer:
    since_us, next_us = webhook.failing_since_us, webhook.next_attempt_us
    return WebhookAnswer(
        id=webhook.id,
        url=webhook.url,
        events=webhook.events,
        boards=webhook.boards,
        created_at=format_us(webhook.created_at_us),
        state="paused" if webhook.is_paused else "active" if since_us is None else "failing",
        delivered=webhook.delivered,
        failures=webhook.failures,
        failing_since=None if since_us is None else format_us(since_us),
        next_attempt=format_us(next_us) if since_us is not None and not webhook.is_paused else None,
        last_error=webhook.last_error,
        secret=secret,
    )


EVENTS = [
    Route("GET", "/v1/events", get_events, Role.WRITER, "events", _TAG, query=EventsQuery),
    Route("PUT", _WEBHOOK, put_webhook, Role.OPS, "put_webhook", _TAG, body=PutWebhook,
        acts=("webhook.created", "webhook.changed")),
    Route("GET", _WEBHOOK, get_webhook, Role.OPS, "webhook", _TAG),
    Route("GET", "/v1/webhooks", get_webhooks, Role.OPS, "webhooks", _TAG, query=ListQuery),
    Route("DELETE", _WEBHOOK, remove_webhook, Role.OPS, "delete_webhook", _TAG, acts=("webhook.deleted",)),
    Route("POST", _WEBHOOK + "/rotate", rotate_secret, Role.OPS, "rotate_webhook", _TAG, acts=("webhook.changed",)),
    Route("POST", _WEBHOOK + "/resume", resume_webhook, Role.OPS, "resume_webhook", _TAG, acts=("webhook.resumed",)),
    Route("POST", _WEBHOOK + "/test", test_webhook, Role.OPS, "test_webhook", _TAG),
]  # fmt: skip
