"""Test the list of events. A game that waits for the end of a week must hear of it once, and of each week."""

from functools import partial

from storage.events.event_log import find_oldest, make_follower, prune_events, read_events
from storage.store import CONTROL, in_partition
from tests.storage.deployment import Deployment, ranked
from tests.storage.log.test_following import follow

XP = ranked("xp")


async def follow_all(deployment: Deployment) -> None:
    for partition in range(deployment.store.partitions):
        while await follow(deployment.store.at(partition), make_follower(partition)):
            pass


async def test_the_creation_of_each_board_is_one_event_in_the_order_of_creation(deployment: Deployment) -> None:
    for name in ("a", "b", "c"):
        await deployment.create(name, XP)
    await follow_all(deployment)
    await follow_all(deployment)
    events = await deployment.store.read(lambda: read_events(0, limit=10))
    assert [(event.number, event.type, event.board_id) for event in events] == [
        (1, "board.created", "a"),
        (2, "board.created", "b"),
        (3, "board.created", "c"),
    ]
    assert [event.number for event in await deployment.store.read(lambda: read_events(1, limit=1))] == [2]
    assert [event.at_us for event in events] == sorted(event.at_us for event in events)


async def test_old_events_go_and_the_numbers_of_later_ones_go_on(deployment: Deployment) -> None:
    await deployment.create("a", XP)
    await follow_all(deployment)
    assert await deployment.store.read(find_oldest) == 1
    pruning = partial(prune_events, before_us=2**62, rows_max=10)
    assert await deployment.store.write(lambda: in_partition(CONTROL, pruning())) == 1
    assert await deployment.store.read(find_oldest) is None
    await deployment.create("b", XP)
    await follow_all(deployment)
    assert [event.number for event in await deployment.store.read(lambda: read_events(0, limit=10))] == [2]
