"""Test refresh requests in the store: one that is lost, or answered by an earlier refresh, tells an operator lies."""

from __future__ import annotations

from storage.boards.boards import create_board, delete_board
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
from tests.storage.deployment import BOARDS_MAX, Deployment, ranked, spec

DONE = RefreshAnswer("refreshed", "", 7, 1_500)
NOTHING = RefreshAnswer("")  # type: ignore[arg-type]  # as the row begins


async def make_board(deployment: Deployment, board_id: str = "b") -> Board:
    wanted = deployment.laid_out(spec(ranked("xp0"), ranked("xp1")))
    return await deployment.store.write(
        lambda: create_board(deployment.dialect, board_id=board_id, spec=wanted, now_us=1, boards_max=BOARDS_MAX)
    )


async def demand(deployment: Deployment, board: Board, column_index: int = 0) -> int:
    return await deployment.store.write(lambda: store_refresh_request(deployment.dialect, board, column_index))


async def listed(deployment: Deployment, limit: int = 10) -> list[StoredRefreshRequest]:
    return await deployment.store.read(lambda: list_open_refresh_requests(deployment.dialect, limit))


async def take(deployment: Deployment, wanted: StoredRefreshRequest) -> bool:
    return await deployment.store.write(lambda: take_refresh_request(deployment.dialect, wanted))


async def answer(deployment: Deployment, wanted: StoredRefreshRequest, told: RefreshAnswer = DONE) -> None:
    await deployment.store.write(lambda: answer_refresh_request(deployment.dialect, wanted, told))


async def state(deployment: Deployment, board: Board) -> RefreshRequestState | None:
    return await deployment.store.read(lambda: find_refresh_request_state(deployment.dialect, board.key, 0))


async def test_each_refresh_request_waits_until_one_process_takes_it_oldest_first(deployment: Deployment) -> None:
    board, other = await make_board(deployment), await make_board(deployment, "other")
    numbers = [await demand(deployment, *which) for which in ((other, 1), (board, 0), (board, 1))]
    assert numbers == sorted(numbers)
    found = await listed(deployment)
    assert found == [
        StoredRefreshRequest(other.key, 1, other.epoch, "other", numbers[0], ""),
        StoredRefreshRequest(board.key, 0, board.epoch, "b", numbers[1], ""),
        StoredRefreshRequest(board.key, 1, board.epoch, "b", numbers[2], ""),
    ]
    assert await listed(deployment, 1) == found[:1]
    assert [await take(deployment, found[1]) for _ in range(2)] == [True, False]
    assert await listed(deployment) == [found[0], found[2]]


async def test_an_answer_settles_its_number_and_all_before_it(deployment: Deployment) -> None:
    board = await make_board(deployment)
    await demand(deployment, board)
    [first] = await listed(deployment)
    await take(deployment, first)
    second_number = await demand(deployment, board)
    [second] = await listed(deployment)
    assert (second.number, await take(deployment, second)) == (second_number, True)
    await answer(deployment, first)
    assert await state(deployment, board) == RefreshRequestState(second.number, first.number, DONE)
    failed = RefreshAnswer("failed", "'; --", 0, 0)
    await answer(deployment, second, failed)
    await answer(deployment, first)  # recorded late
    assert await state(deployment, board) == RefreshRequestState(second.number, second.number, failed)


async def test_a_request_that_was_renewed_meanwhile_is_not_taken_as_the_old_one(deployment: Deployment) -> None:
    board = await make_board(deployment)
    await demand(deployment, board)
    [first] = await listed(deployment)
    await demand(deployment, board)
    assert not await take(deployment, first)
    [second] = await listed(deployment)
    assert await take(deployment, second)


async def test_a_request_given_back_is_open_again_unless_a_later_one_was_taken(deployment: Deployment) -> None:
    board = await make_board(deployment)
    await demand(deployment, board)
    [first] = await listed(deployment)
    await take(deployment, first)
    await deployment.store.write(lambda: return_refresh_request(deployment.dialect, first))
    assert await listed(deployment) == [first]
    await demand(deployment, board)
    [second] = await listed(deployment)
    await take(deployment, second)
    await deployment.store.write(lambda: return_refresh_request(deployment.dialect, first))
    assert await listed(deployment) == []


async def test_refresh_requests_are_deleted_with_their_board(deployment: Deployment) -> None:
    board = await make_board(deployment)
    await demand(deployment, board)
    assert await state(deployment, board) == RefreshRequestState(0, 0, NOTHING)
    await deployment.store.write(lambda: delete_board(deployment.dialect, board_id="b"))
    assert await state(deployment, board) is None
    assert await listed(deployment) == []
