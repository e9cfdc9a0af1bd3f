"""Finds who gets which reward in a league's period by the final ranks in each cohort, one cohort after the other."""

from collections.abc import Mapping

from storage.leagues.cohorts import WAITING, list_winners, split_cohort
from storage.records import Board, Rewards
from storage.store import Program

from .grant_walk import NewGrant, WalkMark


class LeagueWalk:
    """Walks through the cohorts of a board whose results are final. Before they are, it finds nobody."""

    def __init__(self, board: Board, rewards: Rewards) -> None:
        self.rewards, self._leaf = rewards.listed, board.leaf
        self._to_rank = max(each.to_rank or 0 for each in rewards.listed)

    def read_step(
        self, mark: WalkMark, rows_max: int, totals: Mapping[int, int]
    ) -> Program[tuple[list[NewGrant], WalkMark]]:
        """Read the cohorts after a mark, as `GrantWalk.read_step` reads rows. `mark.last` holds the last cohort."""
        after = int(mark.last[0] or WAITING)
        seats, last = yield from list_winners(self._leaf, self._to_rank, after=after, rows_max=rows_max)
        found = []
        for owner, cohort, rank, _ in seats:
            reward = self._find_reward(split_cohort(cohort)[0], rank or 0)
            if reward is not None:
                found.append(NewGrant(owner, reward, rank or 0))
        grants = mark.grants + len(found)
        if last is None:
            return found, WalkMark(len(self.rewards), grants=grants)
        return found, WalkMark(mark.reward, last=(str(last), ""), grants=grants)

    def _find_reward(self, division: int, rank: int) -> int | None:
        for index, each in enumerate(self.rewards):
            if each.division in (None, division) and rank <= (each.to_rank or 0):
                return index
        return None
