"""Stores webhooks: the addresses that receive events, how far each one has come, and when to retry a failing one.

    active ── a delivery fails ──> tried again later and later ── for FAILING_US ──> paused ── resume ──> active

Deliveries to a webhook are signed with its secret. After a rotation, they are signed with the earlier secret as well,
for `ROTATION_US`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from querybuilder import Lock, asc, col, count, delete, max_, param, select
from storage.errors import CatalogFullError, UnknownWebhookError
from storage.schema.placement import prepare_put
from storage.schema.tables import EVENTS, WEBHOOKS
from storage.store import Program, Rows

from .event_log import Event

WEBHOOKS_MAX = 100
TESTS_MAX = 10
ROTATION_US = 86_400_000_000
FAILING_US = 3 * 86_400_000_000
FIRST_PAUSE_US, LONGEST_PAUSE_US = 5_000_000, 3_600_000_000


class Secret(NamedTuple):
    text: str  # "whsec_" and base64, as Standard Webhooks has it
    until_us: int | None  # when the secret stops to sign; None: it is the newest one


class Webhook(msgspec.Struct, frozen=True):
    id: str
    url: str
    events: tuple[str, ...]  # the types that are delivered; empty: all
    boards: tuple[str, ...]  # ids of boards, or beginnings of ids that end in `*`; empty: all boards
    secrets: tuple[Secret, ...]  # the newest one first
    created_at_us: int
    delivered: int  # the number of the last event that was delivered or passed over
    is_paused: bool = False
    failures: int = 0  # since the last success
    failing_since_us: int | None = None
    next_attempt_us: int = 0
    last_error: str | None = None
    tests: int = 0  # test deliveries that were asked for and not made yet

    def wants(self, event: Event) -> bool:
        is_named = any(
            event.board_id.startswith(each[:-1]) if each.endswith("*") else event.board_id == each
            for each in self.boards
        )
        return (not self.events or event.type in self.events) and (not self.boards or is_named)

    def list_secrets(self, now_us: int) -> list[str]:
        return [each.text for each in self.secrets if each.until_us is None or each.until_us > now_us]

    def rotate(self, secret: str, now_us: int) -> "Webhook":
        """Set a new secret. Deliveries are also signed with the previous secret, but no older one, for another day."""
        before = Secret(self.secrets[0].text, now_us + ROTATION_US)
        return msgspec.structs.replace(self, secrets=(Secret(secret, None), before))

    def succeed(self, delivered: int, *, tests: int = 0) -> "Webhook":
        """Record that the event with this number, or that many test deliveries, arrived."""
        return msgspec.structs.replace(
            self,
            delivered=max(delivered, self.delivered),
            failures=0,
            failing_since_us=None,
            last_error=None,
            tests=max(0, self.tests - tests),
        )

    def pass_over(self, number: int) -> "Webhook":
        """Skip the events up to this number, which the webhook does not want."""
        return msgspec.structs.replace(self, delivered=max(number, self.delivered))

    def fail(self, error: str, now_us: int) -> "Webhook":
        """Record a failed delivery. The webhook waits longer after each one, and in the end until it is resumed."""
        since_us = self.failing_since_us or now_us
        pause_us = min(FIRST_PAUSE_US << min(self.failures, 20), LONGEST_PAUSE_US)
        return msgspec.structs.replace(
            self,
            failures=self.failures + 1,
            failing_since_us=since_us,
            next_attempt_us=now_us + pause_us,
            last_error=error,
            is_paused=now_us - since_us >= FAILING_US,
        )

    def ask_test(self) -> "Webhook":
        return msgspec.structs.replace(self, tests=min(self.tests + 1, TESTS_MAX), next_attempt_us=0)

    def resume(self) -> "Webhook":
        return msgspec.structs.replace(self, is_paused=False, failures=0, failing_since_us=None, next_attempt_us=0)


def list_webhooks(after: str = "", limit: int = WEBHOOKS_MAX) -> Program[list[Webhook]]:
    """List webhooks whose ids come after `after`, ordered by id. A store has at most `WEBHOOKS_MAX`."""
    return [_decode(row[0]) for row in (yield _LIST.bind(after=after, limit=limit))]


def find_webhook(webhook_id: str) -> Program[Webhook]:
    rows = yield _FIND.bind(id=webhook_id)
    return _decode_found(webhook_id, rows)


def put_webhook(
    webhook_id: str, url: str, events: Sequence[str], boards: Sequence[str], *, secret: str, now_us: int
) -> Program[tuple[Webhook, bool]]:
    """Store a webhook or change an existing one, and return it with whether it is new.

    `secret` is used only for a new webhook, which gets the events after the newest one. Raises CatalogFullError if
    there are already `WEBHOOKS_MAX` webhooks.
    """
    rows = yield _HOLD.bind(id=webhook_id)
    if rows:
        webhook = msgspec.structs.replace(_decode(rows[0][0]), url=url, events=tuple(events), boards=tuple(boards))
    else:
        [[stored, newest]] = yield _COUNT.bind()
        if stored >= WEBHOOKS_MAX:
            raise CatalogFullError(f"the store already holds {WEBHOOKS_MAX} webhooks, the limit; delete one first")
        secrets = (Secret(secret, None),)
        webhook = Webhook(webhook_id, url, tuple(events), tuple(boards), secrets, now_us, newest or 0)
    yield _PUT.bind(id=webhook_id, document=_encode(webhook).decode())
    return webhook, not rows


def change_webhook(webhook_id: str, change: Callable[[Webhook], Webhook]) -> Program[Webhook]:
    """Apply `change` to a stored webhook, store the result, and return it. Raises UnknownWebhookError."""
    rows = yield _HOLD.bind(id=webhook_id)
    webhook = change(_decode_found(webhook_id, rows))
    yield _PUT.bind(id=webhook_id, document=_encode(webhook).decode())
    return webhook


def delete_webhook(webhook_id: str) -> Program[None]:
    [[deleted]] = yield _DELETE.bind(id=webhook_id)
    if not deleted:
        raise UnknownWebhookError(f"no webhook {webhook_id!r}")


def _decode_found(webhook_id: str, rows: Rows) -> Webhook:
    if not rows:
        raise UnknownWebhookError(f"no webhook {webhook_id!r}")
    return _decode(rows[0][0])


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Webhook).decode
_document = select(col("document")).from_(WEBHOOKS)
_LIST = _document.where(col("id").gt(param("after"))).order_by(asc(col("id"))).limit(param("limit")).prepared()
_of_one = col("id").eq(param("id"))
_FIND = _document.where(_of_one).prepared()
_HOLD = _document.where(_of_one).locked(Lock.UPDATE).prepared()
_COUNT = select(select(count()).from_(WEBHOOKS).scalar(), select(max_(col("number"))).from_(EVENTS).scalar()).prepared()
_PUT = prepare_put(WEBHOOKS)
_DELETE = delete(WEBHOOKS).where(_of_one).prepared()
