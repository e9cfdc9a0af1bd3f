"""Test refresh requests in the store. An operator relies on a result that is newer than the request."""

from storage.curves.refresh_requests import (
    RefreshAnswer,
    RefreshRequest,
    answer_refresh_request,
    find_refresh_request,
    find_requested_leaf,
    list_open_refresh_requests,
    store_refresh_request,
)
from tests.storage.deployment import Deployment, ranked

COLUMNS = ranked("xp0"), ranked("xp1")


async def test_each_request_is_open_until_it_is_answered_oldest_first(deployment: Deployment) -> None:
    board, other = await deployment.create("b", *COLUMNS), await deployment.create("other", *COLUMNS)
    slots = [(other.key, 1), (board.key, 0), (board.key, 1)]
    numbers = [await deployment.write(store_refresh_request, slot) for slot in slots]
    assert numbers == sorted(numbers)
    assert await deployment.read(list_open_refresh_requests, 10) == slots
    assert await deployment.read(list_open_refresh_requests, 1) == slots[:1]
    found = await deployment.write(find_requested_leaf, slots[1])
    assert found == (RefreshRequest(numbers[1], "", 0, RefreshAnswer()), board.leaf)
    await deployment.write(answer_refresh_request, slots[1], numbers[1], RefreshAnswer(7, took_us=1_500))
    assert await deployment.read(list_open_refresh_requests, 10) == [slots[0], slots[2]]
    assert await deployment.write(find_requested_leaf, slots[1]) is None


async def test_an_answer_settles_its_number_and_all_before_it(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    slot = board.key, 0
    first, second = [await deployment.write(store_refresh_request, slot, name) for name in ("one", "two")]
    done, failed = RefreshAnswer(7, took_us=7), RefreshAnswer(failure="failed")
    await deployment.write(answer_refresh_request, slot, first, done)
    assert await deployment.read(find_refresh_request, slot) == RefreshRequest(second, "two", first, done)
    assert await deployment.read(list_open_refresh_requests, 10) == [slot]
    await deployment.write(answer_refresh_request, slot, second, failed)
    await deployment.write(answer_refresh_request, slot, first, done)  # a late answer must have no effect
    assert await deployment.read(find_refresh_request, slot) == RefreshRequest(second, "two", second, failed)


async def test_refresh_requests_are_deleted_with_their_board(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    slot = board.key, 0
    await deployment.write(store_refresh_request, slot)
    await deployment.delete()
    assert await deployment.read(find_refresh_request, slot) is None
    await deployment.write(store_refresh_request, slot)  # by a process that does not know of the deletion yet
    assert await deployment.write(find_requested_leaf, slot) is None
    assert await deployment.read(list_open_refresh_requests, 10) == []
