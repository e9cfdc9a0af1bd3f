"""Finds who gets which of a board's rewards, by walking through the ranking of one reward after the other.

A rank is 1 + the number of strictly better rows that the walk has passed. So hidden and erased owners, who have no row,
do not lower anyone's rank. If equal values share a rank, all owners tied at a reward's boundary get it.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec

from storage.leaves.rankings import Ranking
from storage.log.cells import CellOf
from storage.records import Board, Each, Entry, Rewards, RewardSpec
from storage.store import Program

TIES_READ = 50  # read at least this many rows, because rows at the boundary of a reward may tie


class WalkMark(msgspec.Struct, array_like=True, frozen=True):
    """Marks how far a walk has got: in the ranking of the reward `reward`, after the row `last`."""

    reward: int = 0  # 0-based; the number of rewards: the walk has ended
    rows: int = 0  # how many rows of the ranking got the reward, or an earlier one instead
    rank: int = 0  # of the row `last`
    last: CellOf = ("", "")  # the last of these rows
    last_rank: int | None = None  # the worst rank that gets the reward; None: a value decides
    ends: tuple[CellOf | None, ...] = ()  # the row `last` of each earlier reward; None: it had no row
    grants: int = 0  # how many grants the walk has found so far


class NewGrant(NamedTuple):
    owner: str
    reward: int  # the index of the reward
    rank: int


class GrantWalk:
    def __init__(self, board: Board, rankings: Mapping[int, Ranking], rewards: Rewards) -> None:
        self.rewards = rewards.listed
        self._rankings = [rankings[board.column_index[each.column]] for each in rewards.listed]
        self._first_only = rewards.each is Each.FIRST

    def read_step(
        self, mark: WalkMark, rows_max: int, totals: Mapping[int, int]
    ) -> Program[tuple[list[NewGrant], WalkMark]]:
        """Read about `rows_max` rows after a mark. Return the grants among them, and the mark for the next step.

        `totals`: the board's totals by column index. Run this in the partition where the board is read.
        """
        found: list[NewGrant] = []
        while rows_max > 0 and mark.reward < len(self.rewards):
            reward, ranking = self.rewards[mark.reward], self._rankings[mark.reward]
            if mark.rows == 0:
                last_rank = _find_last_rank(reward, totals.get(ranking.index, 0))
                mark = msgspec.structs.replace(mark, last_rank=last_rank)
            limit = rows_max
            if mark.last_rank is not None:
                limit = min(limit, max(mark.last_rank + 1 - mark.rows, TIES_READ))
            if mark.rows == 0:
                entries = yield from ranking.read_first_rows(limit)
            else:
                entries = yield from ranking.read_rows_after(*mark.last, limit)
            granted, mark = self._grant(mark, entries, ended=len(entries) < limit)
            found += granted
            rows_max -= max(1, len(entries))
        return found, mark

    def _grant(self, mark: WalkMark, entries: Sequence[Entry], *, ended: bool) -> tuple[list[NewGrant], WalkMark]:
        reward, ranking = self.rewards[mark.reward], self._rankings[mark.reward]
        rows, rank, (cell, owner) = mark.rows, mark.rank, mark.last
        found = []
        for entry in entries:
            entry_cell = str(entry.cells[ranking.index])
            entry_rank = rows + 1 if ranking.timed or entry_cell != cell else rank
            if not self._fits(reward, ranking, entry_cell, entry_rank, mark.last_rank):
                ended = True
                break
            rows, rank, cell, owner = rows + 1, entry_rank, entry_cell, entry.owner
            if not (self._first_only and self._has_earlier(mark.ends, entry)):
                found.append(NewGrant(owner, mark.reward, rank))
        grants = mark.grants + len(found)
        if ended:
            end = (cell, owner) if rows else None
            return found, WalkMark(mark.reward + 1, ends=(*mark.ends, end), grants=grants)
        return found, WalkMark(mark.reward, rows, rank, (cell, owner), mark.last_rank, mark.ends, grants)

    def _fits(self, reward: RewardSpec, ranking: Ranking, cell: str, rank: int, last_rank: int | None) -> bool:
        if reward.value_scaled is None:
            return rank <= (last_rank or 0)
        value = ranking.padding.decode_value(cell)
        return value >= reward.value_scaled if ranking.padding.high else value <= reward.value_scaled

    def _has_earlier(self, ends: Sequence[CellOf | None], entry: Entry) -> bool:
        for end, ranking in zip(ends, self._rankings, strict=False):
            cell = entry.cells[ranking.index]
            if end is None or cell is None:
                continue
            key, end_key = (ranking.padding.key_of_cell(str(each)) for each in (cell, end[0]))
            if key < end_key or (key == end_key and (not ranking.timed or entry.owner <= end[1])):
                return True
        return False


def _find_last_rank(reward: RewardSpec, total: int) -> int | None:
    """Find the worst rank that gets a reward, given `total` ranked entries. Return None if a value decides instead."""
    if reward.to_percent is None:
        return reward.to_rank
    numerator, denominator = (Fraction(str(reward.to_percent)) / 100).as_integer_ratio()
    return -(-total * numerator // denominator)  # the division rounds up
