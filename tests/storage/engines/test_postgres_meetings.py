"""Test an operator's change of a board together with posts of another process, in both orders.

A third session holds a lock. The first of the two transactions waits for this lock, and the second waits for the first.
Then the third session releases the lock.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import asyncpg
import pytest

from storage.errors import UnknownBoardError
from storage.leaves import hidden_owners
from storage.leaves.row_tables import entries_table
from storage.leaves.totals import ALL_ENTRIES, CHANGES
from storage.records import Board, PartOutcome, Post, PostStatus, TableSharing
from tests.storage.deployment import Deployment, part, ranked, spec
from tests.storage.processes import Processes, count_waiting

XP, KILLS = ranked("xp"), ranked("kills")
WAIT_S = 60
Step = Callable[[], Awaitable[object]]


@dataclass
class Meeting:
    """Two processes that know a board on which ada has an entry, and a third session on the same store."""

    operator: Deployment
    poster: Deployment
    board: Board
    third: asyncpg.Connection
    session_name: str

    def make_posts(self) -> list[Post]:
        """Return a post for an owner who has an entry, and a post for a new owner."""
        owners = ("ada", "bob")
        return [self.poster.post(owner, part(self.board, {"xp": 1}), post_id=f"id/{owner}") for owner in owners]

    async def post(self) -> list[PartOutcome]:
        """Submit the posts of `make_posts` to the writer of the posting process. Return the outcomes."""
        return [outcome for [outcome] in await self.submit(self.make_posts())]

    async def submit(self, posts: list[Post]) -> list[list[PartOutcome]]:
        async with self.poster.open_writer() as writer:
            return await writer.submit(posts)

    async def delete(self) -> object:
        return await self.operator.delete()

    async def reset(self) -> object:
        return await self.operator.reset()

    async def widen(self) -> object:
        return await self.operator.change("b", spec(XP, KILLS))

    async def run_in_order(self, *steps: Step) -> list[object]:
        """Start the steps in this order, before any of them reaches the board's rows. Return their results."""
        table = entries_table(self.board.key)
        running: list[asyncio.Future[object]] = []
        async with self.third.transaction():
            # A posting transaction waits for the locked row. A step that needs the whole table waits for every session
            # that came before it.
            await self.third.execute(f"SELECT 1 FROM {table} FOR UPDATE")
            for step in steps:
                running.append(asyncio.ensure_future(step()))
                while await self.count_waiting(table) < len(running):
                    assert not running[-1].done(), running[-1]
        return await asyncio.gather(*running)

    async def wait_for_locks(self, table: str, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while await self.count_waiting(table) < count:
                pass

    async def count_waiting(self, table: str) -> int:
        return await count_waiting(self.third, self.session_name, f'%"{table}"%')


@pytest.fixture
async def meeting(processes: Processes, raw: asyncpg.Connection, session_name: str) -> Meeting:
    operator, poster = await processes.start_process(), await processes.start_process()
    board = await operator.create("b", XP)
    await poster.apply(poster.post("ada", part(board, {"xp": 5})))
    return Meeting(operator, poster, board, raw, session_name)


async def test_posts_before_a_reset_are_deleted_by_it_and_may_be_posted_again(meeting: Meeting) -> None:
    posted, _ = await meeting.run_in_order(meeting.post, meeting.reset)
    assert [outcome.status for outcome in posted] == [PostStatus.APPLIED] * 2  # type: ignore[attr-defined]
    assert await meeting.poster.stats(meeting.board, "ada") is None
    assert await meeting.poster.totals(meeting.board) == {}
    again = await meeting.post()
    assert [(outcome.status, outcome.stats) for outcome in again] == [(PostStatus.APPLIED, [1])] * 2


async def test_posts_after_a_reset_start_from_nothing(meeting: Meeting) -> None:
    _, posted = await meeting.run_in_order(meeting.reset, meeting.post)
    assert [(outcome.status, outcome.stats) for outcome in posted] == [(PostStatus.APPLIED, [1])] * 2  # type: ignore[attr-defined]
    assert await meeting.poster.totals(meeting.board) == {ALL_ENTRIES: 2, CHANGES: 2, 0: 2}
    again = await meeting.post()
    assert [outcome.status for outcome in again] == [PostStatus.DUPLICATE] * 2


async def test_posts_before_a_deletion_are_applied_and_deleted_with_the_board(meeting: Meeting) -> None:
    posted, _ = await meeting.run_in_order(meeting.post, meeting.delete)
    assert [outcome.status for outcome in posted] == [PostStatus.APPLIED] * 2  # type: ignore[attr-defined]
    assert await meeting.poster.totals(meeting.board) == {}
    assert [type(outcome.error) for outcome in await meeting.post()] == [UnknownBoardError] * 2


async def test_posts_after_a_deletion_are_rejected_and_leave_nothing(meeting: Meeting) -> None:
    _, posted = await meeting.run_in_order(meeting.delete, meeting.post)
    assert [type(outcome.error) for outcome in posted] == [UnknownBoardError] * 2  # type: ignore[attr-defined]
    assert await meeting.poster.totals(meeting.board) == {}


@pytest.mark.parametrize("posts_first", [True, False])
async def test_posts_and_a_new_column_do_not_disturb_each_other(meeting: Meeting, posts_first: bool) -> None:
    steps = (meeting.post, meeting.widen) if posts_first else (meeting.widen, meeting.post)
    await meeting.run_in_order(*steps)
    board = await meeting.poster.catalog.reread_board("b")
    assert await meeting.poster.stats(board, "ada") == {"xp": 6, "kills": None}
    assert await meeting.poster.stats(board, "bob") == {"xp": 1, "kills": None}
    await meeting.poster.apply(meeting.poster.post("bob", part(board, {"kills": 2})))
    assert await meeting.operator.stats(board, "bob") == {"xp": 1, "kills": 2}


async def test_a_post_does_not_overtake_a_reset_that_waits_for_another_post(
    processes: Processes, raw: asyncpg.Connection, session_name: str
) -> None:
    """Share the board's gate, as a post does, until a reset waits for the gate. Then start another post."""
    operator, poster = await processes.start_process(), await processes.start_process()
    operator.table = TableSharing.SHARED
    board = await operator.create("b", XP)
    meeting = Meeting(operator, poster, board, raw, session_name)
    async with raw.transaction():
        await raw.execute("SELECT 1 FROM gates FOR SHARE")
        resetting = asyncio.ensure_future(meeting.reset())
        await meeting.wait_for_locks("gates", 1)
        posting = asyncio.ensure_future(poster.apply(poster.post("ada", part(board, {"xp": 1}))))
        while not posting.done() and await meeting.count_waiting("gates") < 2:
            pass
    await asyncio.gather(resetting, posting)
    assert await poster.stats(await poster.find(), "ada") == {"xp": 1}


async def test_a_post_of_a_new_owner_also_delays_the_deletion_of_its_board(meeting: Meeting) -> None:
    other = await meeting.operator.create("other", XP)
    await meeting.poster.apply(meeting.poster.post("new", part(other, {"xp": 5})))
    post = meeting.poster.post("new", part(meeting.board, {"xp": 1}), part(other, {"xp": 1}))
    # The post finds no row on the first board. Then it waits for its row on the second board.
    async with meeting.third.transaction():
        await meeting.third.execute(f"SELECT 1 FROM {entries_table(other.key)} FOR UPDATE")
        posting = asyncio.ensure_future(meeting.submit([post]))
        await meeting.wait_for_locks(entries_table(other.key), 1)
        deleting = asyncio.ensure_future(meeting.delete())
        await meeting.wait_for_locks(entries_table(meeting.board.key), 1)
    [outcomes], _ = await asyncio.gather(posting, deleting)
    assert [outcome.status for outcome in outcomes] == [PostStatus.APPLIED] * 2
    assert await meeting.poster.totals(meeting.board) == {}
    assert await meeting.poster.stats(other, "new") == {"xp": 6}


@pytest.mark.parametrize("hidden", ["bob", "eve"])
async def test_a_group_with_a_new_row_runs_again_if_an_owner_is_hidden_before_it_is_committed(
    meeting: Meeting, hidden: str
) -> None:
    old, new = meeting.make_posts()
    async with meeting.third.transaction():
        await meeting.third.execute("UPDATE log_counter SET facts = facts + 1")
        await meeting.third.execute("INSERT INTO hidden_owners VALUES ($1, 'hidden')", hidden)
        posting = asyncio.ensure_future(meeting.poster.apply(new))
        await meeting.wait_for_locks("log_counter", 1)
    await posting
    assert await meeting.poster.stats(meeting.board, "bob") == (None if hidden == "bob" else {"xp": 1})
    await meeting.third.execute("UPDATE log_counter SET facts = facts + 1")
    await meeting.poster.apply(old)
    assert await meeting.poster.stats(meeting.board, "ada") == {"xp": 6}, "its row was there"


async def test_a_group_runs_again_while_a_hidden_row_of_its_owner_is_being_shown(meeting: Meeting) -> None:
    _, new = meeting.make_posts()
    async with meeting.third.transaction():
        await meeting.third.execute("UPDATE log_counter SET facts = facts + 2")
        await meeting.third.execute("INSERT INTO hidden_owners VALUES ('bob', $1)", hidden_owners.SHOWING)
        await meeting.third.execute("INSERT INTO hidden_entries VALUES ($1, 'bob', 1, '[40]')", meeting.board.key)
        posting = asyncio.ensure_future(meeting.poster.apply(new))
        await meeting.wait_for_locks("log_counter", 1)
    [[outcome]] = await posting
    assert outcome.stats == [41], "the post finds the hidden row"


async def test_a_group_inserts_its_new_rows_before_it_changes_any_so_that_two_groups_never_deadlock(
    meeting: Meeting,
) -> None:
    """The third session is another group: it inserts bob, then finds that ada is there, whom it had not yet seen."""
    table = entries_table(meeting.board.key)
    insert = f"INSERT INTO {table} (owner, updated_at) VALUES ($1, 1) ON CONFLICT (owner) DO NOTHING"
    async with meeting.third.transaction():
        await meeting.third.execute(insert, "bob")
        posting = asyncio.ensure_future(meeting.submit(meeting.make_posts()))
        await meeting.wait_for_locks(table, 1)
        await meeting.third.execute("SET LOCAL lock_timeout = '100ms'")  # fail rather than wait for the posts
        await meeting.third.execute(insert, "ada")
        await meeting.third.execute(f"DELETE FROM {table} WHERE owner = 'bob'")
    assert [outcome.status for [outcome] in await posting] == [PostStatus.APPLIED] * 2
