"""Test the event `top.changed` against a plain model, with a job that dies before it has stored how far it came."""

import random
from contextlib import suppress
from functools import partial

import pytest

from jobs.events.tops import RESOURCE, TopsJob
from querybuilder import col, select
from storage.errors import StoreBusyError
from storage.events.event_log import read_events
from storage.events.tops import TOP_CHANGED, TOP_ROWS, find_changes
from storage.events.webhooks import delete_webhook, put_webhook
from storage.records import Merge
from storage.schema.tables import BOARD_TOPS
from tests.jobs.world import World
from tests.storage.deployment import part, ranked

OWNERS = [f"o{number}" for number in range(2 * TOP_ROWS)]


async def watch(world: World, *boards: str) -> None:
    await world.deployment.write(put_webhook, "w", "https://x", [TOP_CHANGED], boards, secret="whsec_1", now_us=1)


async def look(world: World, *, dies: bool = False, job: TopsJob | None = None) -> None:
    """Let a process look once, by default a new one. If it dies, it has not stored how far it came."""
    async with world.hold_job_lease(RESOURCE, 10_000_000) as held:
        with pytest.MonkeyPatch.context() as patch, suppress(StoreBusyError):
            if dies:
                patch.setattr("jobs.events.tops.store_mark", _die)
            await (job or TopsJob(world.context())).look(held)


def _die(until: int) -> None:
    raise StoreBusyError(str(until))


@pytest.mark.parametrize("segments", [1, 4])
async def test_each_change_of_a_top_is_one_event_whatever_dies(world: World, segments: int) -> None:
    rng, deployment = random.Random(segments), world.deployment
    if segments > 1:
        deployment.segments = segments
    boards = {name: await deployment.create(name, ranked("xp", merge=Merge.LAST)) for name in ("a:1", "a:2", "b")}
    await watch(world, "a:*")
    await look(world)
    values: dict[str, dict[str, int]] = {name: {} for name in boards}
    tops: dict[str, list[str]] = {name: [] for name in boards}
    expected: list[str] = []
    for _ in range(60):
        for name, board in boards.items():
            for owner in rng.sample(OWNERS, rng.choice([0, 0, 1, 2])):
                if rng.random() < 0.2:
                    await deployment.erase(board, owner)
                    values[name].pop(owner, None)
                else:
                    values[name][owner] = rng.randrange(100)
                    post = deployment.post(owner, part(board, {"xp": values[name][owner]}))
                    await deployment.apply_one(post)
        await look(world, dies=rng.random() < 0.3)
        for name in ("a:1", "a:2"):
            top = sorted(values[name], key=lambda owner: (-values[name][owner], owner))[:TOP_ROWS]
            expected += [name] if top != tops[name] else []
            tops[name] = top
    await look(world)
    events = await deployment.read(read_events, 0, limit=1_000)
    assert sorted(event.board_id for event in events) == sorted(expected)
    assert {event.type for event in events} == {TOP_CHANGED}
    assert [event.number for event in events] == list(range(1, len(expected) + 1))


async def test_nothing_is_kept_when_no_webhook_asks(world: World) -> None:
    deployment = world.deployment
    board = await deployment.create("a:1", ranked("xp"))
    await watch(world, "a:*")
    await look(world)
    await deployment.apply_one(deployment.post("ada", part(board, {"xp": 1})))
    await look(world)
    await deployment.write(delete_webhook, "w")
    await look(world)
    assert await deployment.store.read_query(select(col("digest")).from_(BOARD_TOPS).bind()) == []
    found = await deployment.store.at(board.home).read(partial(find_changes, 0))
    assert found.mark is None


async def test_what_another_process_has_stored_is_forgotten_too(world: World) -> None:
    deployment, one, other = world.deployment, TopsJob(world.context()), TopsJob(world.context())
    board = await deployment.create("a:1", ranked("xp"))
    await look(world, job=one)
    await watch(world, "a:*")
    await deployment.apply_one(deployment.post("ada", part(board, {"xp": 1})))
    await look(world, job=other)
    await deployment.write(delete_webhook, "w")
    await look(world, job=one)
    assert await deployment.store.read_query(select(col("digest")).from_(BOARD_TOPS).bind()) == []
