"""Test what the store remembers of webhooks."""

import asyncio
from functools import partial

import pytest

from storage.errors import CatalogFullError, UnknownWebhookError
from storage.events import webhooks
from storage.events.event_log import Event
from storage.events.webhooks import (
    FAILING_US,
    LONGEST_PAUSE_US,
    ROTATION_US,
    Secret,
    Webhook,
    change_webhook,
    delete_webhook,
    find_webhook,
    list_webhooks,
    put_webhook,
)
from storage.store import Program
from tests.storage.deployment import Deployment

NOW_US = 10**15
HOOK = Webhook("shop", "https://game.example", (), (), (Secret("whsec_one", None),), NOW_US, 0)


def put(webhook_id: str = "shop", url: str = "https://game.example") -> Program[tuple[Webhook, bool]]:
    return put_webhook(webhook_id, url, (), (), secret="whsec_one", now_us=NOW_US)


async def test_a_changed_webhook_keeps_its_secret_and_how_far_it_has_come(deployment: Deployment) -> None:
    webhook, is_new = await deployment.store.write(put)
    assert (webhook, is_new) == (HOOK, True)
    await deployment.store.write(lambda: change_webhook("shop", lambda it: it.succeed(7)))
    webhook, is_new = await deployment.store.write(lambda: put(url="https://other.example"))
    assert not is_new
    assert (webhook.secrets, webhook.delivered, webhook.url) == (HOOK.secrets, 7, "https://other.example")
    assert await deployment.store.read(lambda: find_webhook("shop")) == webhook
    await deployment.store.write(lambda: delete_webhook("shop"))
    for program in (lambda: delete_webhook("shop"), lambda: change_webhook("shop", Webhook.resume)):
        with pytest.raises(UnknownWebhookError):
            await deployment.store.write(program)


async def test_the_number_of_webhooks_is_bounded(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "WEBHOOKS_MAX", 2)
    for name in ("b", "a"):
        await deployment.store.write(partial(put, name))
    with pytest.raises(CatalogFullError):
        await deployment.store.write(lambda: put("c"))
    assert [each.id for each in await deployment.store.read(list_webhooks)] == ["a", "b"]
    assert [each.id for each in await deployment.store.read(lambda: list_webhooks("a", 1))] == ["b"]


async def test_changes_at_the_same_time_are_all_kept(deployment: Deployment) -> None:
    await deployment.store.write(put)
    ask = [deployment.store.write(lambda: change_webhook("shop", Webhook.ask_test)) for _ in range(5)]
    await asyncio.gather(*ask, deployment.store.write(lambda: change_webhook("shop", lambda it: it.succeed(3))))
    found = await deployment.store.read(lambda: find_webhook("shop"))
    assert (found.tests, found.delivered) == (5, 3)


def test_for_a_day_after_a_rotation_two_secrets_sign_and_never_three() -> None:
    turned = HOOK.rotate("whsec_two", NOW_US)
    assert turned.list_secrets(NOW_US + ROTATION_US - 1) == ["whsec_two", "whsec_one"]
    assert turned.list_secrets(NOW_US + ROTATION_US) == ["whsec_two"]
    assert turned.rotate("whsec_three", NOW_US).list_secrets(NOW_US) == ["whsec_three", "whsec_two"]


def test_a_failing_webhook_waits_longer_each_time_and_is_paused_after_three_days() -> None:
    webhook, now_us, pauses = HOOK, NOW_US, []
    while not webhook.is_paused:
        webhook = webhook.fail("away", now_us)
        pauses.append(webhook.next_attempt_us - now_us)
        now_us = webhook.next_attempt_us
    assert pauses == sorted(pauses)
    assert max(pauses) == LONGEST_PAUSE_US
    assert FAILING_US <= now_us - NOW_US <= FAILING_US + 2 * LONGEST_PAUSE_US
    again = webhook.resume()
    assert (again.is_paused, again.failures, again.next_attempt_us) == (False, 0, 0)


@pytest.mark.parametrize(
    ("boards", "types", "is_wanted"),
    [
        ((), (), True),
        (("arena:*",), (), True),
        (("arena:2026-W48",), (), True),
        (("arena",), (), False),
        (("season", "a*"), ("board.closed",), True),
        ((), ("board.created",), False),
    ],
)
def test_a_webhook_wants_events_by_board_and_type(
    boards: tuple[str, ...], types: tuple[str, ...], is_wanted: bool
) -> None:
    webhook = Webhook("shop", "", types, boards, HOOK.secrets, NOW_US, 0)
    assert webhook.wants(Event(1, NOW_US, "board.closed", "arena:2026-W48")) is is_wanted
