"""Test deliveries to webhooks. A receiver that misses an event never pays a prize, or pays it twice."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import pytest

from jobs.errors import DeliveryFailedError
from jobs.events.deliver import RESOURCE, TEST, DeliverJob
from storage.errors import LostRaceError
from storage.events.event_log import Event, make_follower
from storage.events.webhooks import Webhook, change_webhook, delete_webhook, find_webhook, put_webhook
from tests.jobs.world import World, within
from tests.storage.deployment import ranked

XP = ranked("xp")
Delivery = tuple[str, str]  # id of the delivery, and the board


class Receivers:
    """Receivers of events by URL. A test says which ones fail, and which ones hang."""

    def __init__(self) -> None:
        self.got: dict[str, list[Delivery]] = {}
        self.fails: set[str] = set()
        self.hangs: set[str] = set()
        self.secrets: list[Sequence[str]] = []
        self.arrived = asyncio.Event()

    async def send(self, url: str, secrets: Sequence[str], delivery_id: str, event: Event) -> None:
        if url in self.hangs:
            self.arrived.set()
            await asyncio.Event().wait()
        if url in self.fails:
            raise DeliveryFailedError("the receiver answered 500")
        self.secrets.append(secrets)
        self.got.setdefault(url, []).append((delivery_id, event.board_id))
        self.arrived.set()

    async def wait_for(self, url: str, count: int) -> None:
        while len(self.got.get(url, [])) < count:
            self.arrived.clear()
            await within(self.arrived.wait())


@pytest.fixture
def receivers() -> Receivers:
    return Receivers()


async def put(world: World, name: str, *boards: str) -> None:
    writing = partial(put_webhook, name, name, (), boards, secret="whsec_1", now_us=world.deployment.clock())
    await world.deployment.store.write(writing)


async def happen(world: World, *boards: str) -> None:
    """Create boards, and let the events be listed."""
    for board in boards:
        await world.deployment.create(board, XP)
    for partition in range(world.deployment.store.partitions):
        follower, store = make_follower(partition), world.deployment.store.at(partition)
        page = await store.read(follower.read_page)
        await store.write(partial(follower.store_page, page))


async def find(world: World, name: str) -> Webhook:
    return await world.deployment.store.read(partial(find_webhook, name))


async def test_each_webhook_gets_what_it_wants_in_order_and_goes_on_where_it_was(
    world: World, receivers: Receivers
) -> None:
    await put(world, "all")
    await put(world, "some", "b*")
    await happen(world, "a", "b", "c")
    job = DeliverJob(world.context(), receivers.send)
    for name in ("all", "some"):
        await job.deliver(await find(world, name))
    assert receivers.got == {"all": [("event_1", "a"), ("event_2", "b"), ("event_3", "c")], "some": [("event_2", "b")]}
    assert (await find(world, "some")).delivered == 3
    await happen(world, "b2")
    for name in ("all", "some"):
        await job.deliver(await find(world, name))
    assert receivers.got["all"][3:] == receivers.got["some"][1:] == [("event_4", "b2")]


async def test_after_a_failure_the_same_event_comes_next(world: World, receivers: Receivers) -> None:
    await put(world, "shop")
    await happen(world, "a", "b")
    receivers.fails.add("shop")
    job = DeliverJob(world.context(), receivers.send)
    await job.deliver(await find(world, "shop"))
    failed = await find(world, "shop")
    assert (failed.delivered, failed.failures, failed.last_error) == (0, 1, "the receiver answered 500")
    receivers.fails.clear()
    await job.deliver(failed)
    assert receivers.got["shop"] == [("event_1", "a"), ("event_2", "b")]
    assert (await find(world, "shop")).failures == 0
    assert world.meter.counts["rankcurve_webhook_deliveries failed"] == 1


async def test_a_test_event_goes_first_and_moves_nothing(world: World, receivers: Receivers) -> None:
    await put(world, "shop")
    await happen(world, "a")
    webhook = await world.deployment.store.write(partial(change_webhook, "shop", Webhook.ask_test))
    await DeliverJob(world.context(), receivers.send).deliver(webhook)
    assert [delivery.partition("_")[0] for delivery, _ in receivers.got["shop"]] == ["test", "event"]
    assert (await find(world, "shop")).tests == 0
    assert TEST == "webhook.test"


async def test_a_webhook_that_hangs_delays_no_other_and_a_deleted_one_stops(world: World, receivers: Receivers) -> None:
    await put(world, "hangs")
    await put(world, "works")
    receivers.hangs.add("hangs")
    await happen(world, "a")
    job = DeliverJob(world.context(), receivers.send)
    running = asyncio.create_task(job.run_forever())
    await receivers.wait_for("works", 1)
    hanging = job._under_way["hangs"]
    await world.deployment.store.write(partial(delete_webhook, "hangs"))
    while not hanging.done():
        await world.end_sleep(0.25)
        await asyncio.sleep(0)
    assert hanging.cancelled()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert RESOURCE == "deliver"


async def test_processes_that_die_at_any_point_lose_no_event_and_change_no_order(
    world: World, receivers: Receivers
) -> None:
    """A receiver fails at random. Each delivery is by another process, which may die before it stores the delivery."""
    rng = random.Random(3)
    await put(world, "shop")
    boards = [f"b{number}" for number in range(12)]

    async def send(url: str, secrets: Sequence[str], delivery_id: str, event: Event) -> None:
        if rng.random() < 0.3:
            raise DeliveryFailedError("away")
        await receivers.send(url, secrets, delivery_id, event)
        if rng.random() < 0.3:
            raise LostRaceError("the process died")

    for board in boards:
        await happen(world, board)
        await DeliverJob(world.context(), send).deliver(await find(world, "shop"))
    while (webhook := await find(world, "shop")).delivered < len(boards):
        await DeliverJob(world.context(), send).deliver(webhook)
    unique = list(dict.fromkeys(receivers.got["shop"]))
    assert unique == [(f"event_{number}", board) for number, board in enumerate(boards, 1)]
    assert len(receivers.got["shop"]) > len(unique)
