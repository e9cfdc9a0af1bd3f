"""Test that a random history with voided posts equals the history without them, on every engine and table layout."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from storage.leaves.totals import ALL_ENTRIES
from storage.records import Best, Board, ColumnChange, Merge, Post, Ties
from tests.storage.deployment import Deployment, counter, keep_times, label, part, quotient, ranked, spec
from tests.storage.plain import Reached, merge_row
from tests.storage.posting.test_rebuild import read_everything, read_rows

COLUMNS = (
    ranked("xp", min_scaled=-(10**6), max_scaled=10**6),
    counter("shots"),
    ranked("lap", merge=Merge.MIN, best=Best.LOW, scale=2, min_scaled=-50, max_scaled=10**5),
    ranked("last", merge=Merge.LAST, min_scaled=0, max_scaled=10**5),
    counter("most", merge=Merge.MAX),
    label("clan"),
    ranked("score", merge=Merge.MAX, min_scaled=0),
    counter("time", best=Best.LOW, of="score"),
    label("replay", of="score"),
    quotient("share", "xp", "shots", least=5),
    quotient("pace", "time", "most", sorted_=False, scale=1),
)
TIE_COLUMNS = ("time", "pace", "last")
OWNERS = ("ada", "bob", "ÿ")


@dataclass
class History:
    """The posts that a board has received, and those of them that were voided."""

    board: Board
    posts: list[tuple[str, str, Sequence[ColumnChange], int]] = field(default_factory=list)  # owner, id, changes, time
    voided: set[tuple[str, str]] = field(default_factory=set)
    sent: int = 0

    def rows(self) -> dict[str, list[Reached | None]]:
        """Return the rows as if the voided posts had never been sent."""
        rows: dict[str, list[Reached | None]] = {}
        for owner, post_id, changes, at_us in self.posts:
            if (owner, post_id) not in self.voided:
                before = rows.get(owner, [None] * len(COLUMNS))
                rows[owner] = merge_row(self.board.spec, before, changes, at_us)
        return rows

    def forget(self, owner: str) -> None:
        self.posts = [post for post in self.posts if post[0] != owner]


def draw_post(deployment: Deployment, history: History, rng: random.Random) -> Post:
    posted = [column.name for column in COLUMNS if column.merge is not Merge.QUOTIENT]
    names = rng.sample(posted, rng.randrange(1, 4))
    texts = ("clan", "replay")
    values = {name: f"{name} {rng.randrange(3)}" if name in texts else rng.randrange(9) for name in names}
    overwrite = {"xp": rng.randrange(20)} if "xp" not in values and rng.random() < 0.2 else {}
    at_us = deployment.clock() - rng.randrange(50) if rng.random() < 0.5 else None
    history.sent += 1
    owner, post_id = rng.choice(OWNERS), f"p{history.sent}"
    said = part(history.board, values, overwrite)
    history.posts.append((owner, post_id, said.changes, deployment.clock() if at_us is None else at_us))
    return deployment.post(owner, said, post_id=post_id, at_us=at_us)


async def void_one(deployment: Deployment, history: History, rng: random.Random) -> None:
    """Void a random post. Check the answer, and that the second answer is the same."""
    owner, post_id, _, _ = rng.choice(history.posts)
    first = (owner, post_id) not in history.voided
    history.voided.add((owner, post_id))
    [voided] = await deployment.void(history.board, owner, post_id)
    if first:
        row = history.rows().get(owner)
        assert voided.stats == (None if row is None else [None if held is None else held[0] for held in row])
    assert await deployment.void(history.board, owner, post_id) == [voided]


async def check(deployment: Deployment, history: History, hidden: set[str]) -> None:
    """Compare the stored rows and totals with the history without its voided posts."""
    expected, board = history.rows(), history.board
    rows, unseen, totals = await read_rows(deployment, board)
    merger = deployment.merger(board)
    stored = {owner: merger.decode_stats(cells) for owner, _, *cells in rows}
    for owner, _, values in unseen:
        stored[owner] = merger.decode_stats([*values, *[None] * (len(COLUMNS) - len(values))])
    assert stored == {owner: [None if held is None else held[0] for held in row] for owner, row in expected.items()}
    shown = [row for owner, row in expected.items() if owner not in hidden]
    assert {owner for owner, *_ in unseen} == expected.keys() & hidden
    assert totals.get(ALL_ENTRIES, 0) == len(shown)
    for index in board.sorted_indexes:
        assert totals.get(index, 0) == sum(row[index] is not None for row in shown)
        if board.spec.ties is Ties.EARLIEST:
            padding = deployment.boards.open_rows(board.leaves[0]).rankings[index].padding
            times = {owner: row[index] for owner, row in expected.items() if owner not in hidden}
            assert {owner: padding.reached_us(cells[index]) for owner, _, *cells in rows if cells[index]} == {
                owner: held[1] for owner, held in times.items() if held is not None
            }


@pytest.mark.parametrize("tie_columns", [(), TIE_COLUMNS])
@pytest.mark.parametrize("ties", Ties)
async def test_a_history_with_voided_posts_equals_the_history_without_them(
    deployment: Deployment, ties: Ties, tie_columns: tuple[str, ...]
) -> None:
    rng = random.Random(len(ties) + len(tie_columns))
    columns = keep_times(spec(*COLUMNS, ties=ties)).columns
    board = await deployment.create("b", *columns, ties=ties, tie_columns=tie_columns)
    history, hidden = History(board), set[str]()
    for _ in range(40):
        deployment.clock.now_us += rng.randrange(1, 4)
        act = rng.random()
        if act < 0.6 or not history.posts:
            await deployment.apply(*(draw_post(deployment, history, rng) for _ in range(rng.randrange(1, 5))))
        elif act < 0.85:
            await void_one(deployment, history, rng)
        elif act < 0.9 or history.board.is_spread:
            owner = rng.choice(OWNERS)
            await deployment.erase(history.board, owner)
            # An entry that is gone cannot be erased; a hidden one is not erased by this helper.
            if owner not in hidden:
                history.forget(owner)
        else:  # the helpers hide owners only on boards without segments
            owner = rng.choice(OWNERS)
            change = deployment.show if owner in hidden else deployment.hide
            await change(owner, history.board)
            hidden ^= {owner}
        await check(deployment, history, hidden)
    before = await read_everything(deployment, history.board)
    await deployment.rebuild()
    assert await read_everything(deployment, history.board) == before, "a voided post stays voided in a rebuild"
