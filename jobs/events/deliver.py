"""Delivers events to webhooks, to each one in order and to several at once, so that a slow receiver delays no other.

    list webhooks ──> start a task for each that is due and has none ──> pause ──> …
        task: read events ──> send one ──> store that it was delivered ──> send the next one …

One process at a time delivers, under a lease. If it dies after a receiver has answered, the next process sends that
event again, under the same id, so that the receiver can tell.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from jobs.errors import DeliveryFailedError
from jobs.job_context import JobContext
from jobs.ownership import HeldLease, Ownership
from storage.errors import StorageError, UnknownWebhookError
from storage.events.event_log import Event, read_events
from storage.events.webhooks import Webhook, change_webhook, list_webhooks

log = structlog.get_logger(__name__)

RESOURCE = "deliver"
TEST = "webhook.test"  # the type of a delivery with which an operator tries a webhook
INTERVAL_S = 0.25
EVENTS_A_PAGE = 100
# A function that sends one event: its address, the secrets that sign it, the id of the delivery, the event. It returns
# when the receiver has accepted the event, and raises DeliveryFailedError otherwise.
SendEvent = Callable[[str, Sequence[str], str, Event], Awaitable[None]]


class DeliverJob:
    def __init__(self, context: JobContext, send: SendEvent) -> None:
        self._store, self._ownership, self._send = context.store, Ownership(context), send
        self._now_us, self._meter, self._sleep = context.now_us, context.meter, context.make_sleep(RESOURCE)
        self._under_way: dict[str, asyncio.Task[None]] = {}  # by id of the webhook

    async def run_forever(self) -> None:
        await self._ownership.run_steps(
            RESOURCE, self._start_due, interval_s=INTERVAL_S, load_ratio=1, sleep=self._sleep, ended=self._cancel
        )

    async def _start_due(self, _held: HeldLease) -> bool:
        webhooks, now_us = await self._store.read(list_webhooks), self._now_us()
        for webhook in webhooks:
            task = self._under_way.get(webhook.id)
            if (task is None or task.done()) and not webhook.is_paused and webhook.next_attempt_us <= now_us:
                self._under_way[webhook.id] = asyncio.create_task(self.deliver(webhook), name=f"webhook {webhook.id}")
        for gone in self._under_way.keys() - {webhook.id for webhook in webhooks}:
            self._under_way.pop(gone).cancel()
        failing_us = max((now_us - (webhook.failing_since_us or now_us) for webhook in webhooks), default=0)
        self._meter.set("rankcurve_webhook_failing_seconds", failing_us / 1e6)
        return False

    def _cancel(self) -> None:
        for task in self._under_way.values():
            task.cancel()
        self._under_way.clear()

    async def deliver(self, webhook: Webhook) -> None:
        try:
            while webhook.tests:
                now_us = self._now_us()
                webhook = await self._deliver_one(webhook, f"test_{now_us}", Event(webhook.delivered, now_us, TEST, ""))
            while events := await self._store.read(partial(read_events, webhook.delivered, limit=EVENTS_A_PAGE)):
                for event in filter(webhook.wants, events):
                    webhook = await self._deliver_one(webhook, f"event_{event.number}", event)
                if webhook.delivered < events[-1].number:
                    webhook = await self._change(webhook, lambda stored: stored.pass_over(events[-1].number))
        except UnknownWebhookError:
            return  # it has been deleted
        except DeliveryFailedError as error:
            await self._note_failure(webhook, error.detail)
        except StorageError as error:
            log.warning("webhook_not_read", webhook=webhook.id, detail=error.detail)

    async def _deliver_one(self, webhook: Webhook, delivery_id: str, event: Event) -> Webhook:
        await self._send(webhook.url, webhook.list_secrets(self._now_us()), delivery_id, event)
        self._meter.add("rankcurve_webhook_deliveries", 1, "delivered")
        tests = int(event.type == TEST)
        return await self._change(webhook, lambda stored: stored.succeed(event.number, tests=tests))

    async def _change(self, webhook: Webhook, change: Callable[[Webhook], Webhook]) -> Webhook:
        return await self._store.write(partial(change_webhook, webhook.id, change))

    async def _note_failure(self, webhook: Webhook, detail: str) -> None:
        self._meter.add("rankcurve_webhook_deliveries", 1, "failed")
        try:
            webhook = await self._change(webhook, lambda stored: stored.fail(detail, self._now_us()))
        except StorageError:
            return  # it was deleted, or the store is away: the next attempt shows it
        log.log(
            logging.ERROR if webhook.is_paused else logging.WARNING,
            "webhook_paused" if webhook.is_paused else "webhook_failed",
            webhook=webhook.id,
            failures=webhook.failures,
            detail=detail,
        )
