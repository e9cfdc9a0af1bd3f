"""Test refresh requests in the store. An operator relies on a result that is newer than the request."""

from functools import partial

from storage.curves.refresh_requests import (
    RefreshAnswer,
    RefreshRequestState,
    StoredRefreshRequest,
    answer_refresh_request,
    find_refresh_request_state,
    list_open_refresh_requests,
    return_refresh_request,
    store_refresh_request,
    take_refresh_request,
)
from storage.records import Board
from tests.storage.deployment import Deployment, ranked

COLUMNS = ranked("xp0"), ranked("xp1")
DONE = RefreshAnswer("refreshed", 7, 1_500)
NOTHING = RefreshAnswer("")  # type: ignore[arg-type]  # as the row begins


async def request_one_refresh(deployment: Deployment, board: Board) -> StoredRefreshRequest:
    """Request a refresh, and return the only open request."""
    await deployment.write(store_refresh_request, board, 0)
    [wanted] = await list_requests(deployment)
    return wanted


async def list_requests(deployment: Deployment, limit: int = 10) -> list[StoredRefreshRequest]:
    return await deployment.read(list_open_refresh_requests, limit)


async def test_each_refresh_request_waits_until_one_process_takes_it_oldest_first(deployment: Deployment) -> None:
    board, other = await deployment.create("b", *COLUMNS), await deployment.create("other", *COLUMNS)
    numbers = [await deployment.write(store_refresh_request, *which) for which in ((other, 1), (board, 0), (board, 1))]
    assert numbers == sorted(numbers)
    found = await list_requests(deployment)
    assert found == [
        StoredRefreshRequest(other.key, 1, other.epoch, "other", numbers[0], ""),
        StoredRefreshRequest(board.key, 0, board.epoch, "b", numbers[1], ""),
        StoredRefreshRequest(board.key, 1, board.epoch, "b", numbers[2], ""),
    ]
    assert await list_requests(deployment, 1) == found[:1]
    assert [await deployment.write(take_refresh_request, found[1]) for _ in range(2)] == [True, False]
    assert await list_requests(deployment) == [found[0], found[2]]


async def test_an_answer_settles_its_number_and_all_before_it(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    first = await request_one_refresh(deployment, board)
    await deployment.write(take_refresh_request, first)
    second_number = await deployment.write(store_refresh_request, board, 0)
    [second] = await list_requests(deployment)
    assert (second.number, await deployment.write(take_refresh_request, second)) == (second_number, True)
    await deployment.write(answer_refresh_request, first, DONE)
    read_state = partial(deployment.read, find_refresh_request_state, board.key, 0)
    assert await read_state() == RefreshRequestState(second.number, first.number, DONE)
    failed = RefreshAnswer("failed", 0, 0)
    await deployment.write(answer_refresh_request, second, failed)
    await deployment.write(answer_refresh_request, first, DONE)  # a late answer must have no effect
    assert await read_state() == RefreshRequestState(second.number, second.number, failed)


async def test_a_request_that_was_renewed_meanwhile_is_not_taken_as_the_old_one(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    first = await request_one_refresh(deployment, board)
    await deployment.write(store_refresh_request, board, 0)
    assert not await deployment.write(take_refresh_request, first)
    [second] = await list_requests(deployment)
    assert await deployment.write(take_refresh_request, second)


async def test_a_request_given_back_is_open_again_unless_a_later_one_was_taken(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    first = await request_one_refresh(deployment, board)
    await deployment.write(take_refresh_request, first)
    await deployment.write(return_refresh_request, first)
    assert await list_requests(deployment) == [first]
    second = await request_one_refresh(deployment, board)
    await deployment.write(take_refresh_request, second)
    await deployment.write(return_refresh_request, first)
    assert await list_requests(deployment) == []


async def test_refresh_requests_are_deleted_with_their_board(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await deployment.write(store_refresh_request, board, 0)
    assert await deployment.read(find_refresh_request_state, board.key, 0) == RefreshRequestState(0, 0, NOTHING)
    await deployment.delete()
    assert await deployment.read(find_refresh_request_state, board.key, 0) is None
    assert await list_requests(deployment) == []
