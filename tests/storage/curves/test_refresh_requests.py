"""Test refresh requests in the store. An operator relies on a result that is newer than the request."""

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
DONE = RefreshAnswer("refreshed", "", 7, 1_500)
NOTHING = RefreshAnswer("")  # type: ignore[arg-type]  # as the row begins


async def request_refresh(deployment: Deployment, board: Board, column_index: int = 0) -> int:
    return await deployment.store.write(lambda: store_refresh_request(board, column_index))


async def request_one_refresh(deployment: Deployment, board: Board) -> StoredRefreshRequest:
    """Request a refresh, and return the only open request."""
    await request_refresh(deployment, board)
    [wanted] = await list_requests(deployment)
    return wanted


async def list_requests(deployment: Deployment, limit: int = 10) -> list[StoredRefreshRequest]:
    return await deployment.store.read(lambda: list_open_refresh_requests(limit))


async def take_request(deployment: Deployment, wanted: StoredRefreshRequest) -> bool:
    return await deployment.store.write(lambda: take_refresh_request(wanted))


async def answer_request(deployment: Deployment, wanted: StoredRefreshRequest, told: RefreshAnswer = DONE) -> None:
    await deployment.store.write(lambda: answer_refresh_request(wanted, told))


async def read_state(deployment: Deployment, board: Board) -> RefreshRequestState | None:
    return await deployment.store.read(lambda: find_refresh_request_state(board.key, 0))


async def test_each_refresh_request_waits_until_one_process_takes_it_oldest_first(deployment: Deployment) -> None:
    board, other = await deployment.create("b", *COLUMNS), await deployment.create("other", *COLUMNS)
    numbers = [await request_refresh(deployment, *which) for which in ((other, 1), (board, 0), (board, 1))]
    assert numbers == sorted(numbers)
    found = await list_requests(deployment)
    assert found == [
        StoredRefreshRequest(other.key, 1, other.epoch, "other", numbers[0], ""),
        StoredRefreshRequest(board.key, 0, board.epoch, "b", numbers[1], ""),
        StoredRefreshRequest(board.key, 1, board.epoch, "b", numbers[2], ""),
    ]
    assert await list_requests(deployment, 1) == found[:1]
    assert [await take_request(deployment, found[1]) for _ in range(2)] == [True, False]
    assert await list_requests(deployment) == [found[0], found[2]]


async def test_an_answer_settles_its_number_and_all_before_it(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    first = await request_one_refresh(deployment, board)
    await take_request(deployment, first)
    second_number = await request_refresh(deployment, board)
    [second] = await list_requests(deployment)
    assert (second.number, await take_request(deployment, second)) == (second_number, True)
    await answer_request(deployment, first)
    assert await read_state(deployment, board) == RefreshRequestState(second.number, first.number, DONE)
    failed = RefreshAnswer("failed", "'; --", 0, 0)
    await answer_request(deployment, second, failed)
    await answer_request(deployment, first)  # a late answer to the first request must have no effect
    assert await read_state(deployment, board) == RefreshRequestState(second.number, second.number, failed)


async def test_a_request_that_was_renewed_meanwhile_is_not_taken_as_the_old_one(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    first = await request_one_refresh(deployment, board)
    await request_refresh(deployment, board)
    assert not await take_request(deployment, first)
    [second] = await list_requests(deployment)
    assert await take_request(deployment, second)


async def test_a_request_given_back_is_open_again_unless_a_later_one_was_taken(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    first = await request_one_refresh(deployment, board)
    await take_request(deployment, first)
    await deployment.store.write(lambda: return_refresh_request(first))
    assert await list_requests(deployment) == [first]
    second = await request_one_refresh(deployment, board)
    await take_request(deployment, second)
    await deployment.store.write(lambda: return_refresh_request(first))
    assert await list_requests(deployment) == []


async def test_refresh_requests_are_deleted_with_their_board(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await request_refresh(deployment, board)
    assert await read_state(deployment, board) == RefreshRequestState(0, 0, NOTHING)
    await deployment.delete()
    assert await read_state(deployment, board) is None
    assert await list_requests(deployment) == []
