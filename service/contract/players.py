"""The rights of a player token, and the checks of requests that come with one. `player_tokens` verifies the tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

import msgspec

from storage.records import Best, BoardSpec, ColumnChange, Merge, format_decimal

from .problems import ProblemError
from .requests import PostBody


class Player(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a valid player token, and what the token allows. Times are in microseconds since 1970."""

    owner: str
    boards: frozenset[str]
    families: frozenset[str]
    posts: int  # the most posts to one board, or to one family
    limits: Mapping[str, Decimal]  # by column: the best value that one post may bring, see `find_breach`
    token_id: str
    issued_us: int
    expires_us: int

    def check_owner(self, owner: str) -> None:
        """Raise ProblemError `foreign_owner` if a request concerns another owner than the token."""
        if owner != self.owner:
            raise ProblemError("foreign_owner", "the token was issued for another owner")

    def check_board(self, *names: str) -> None:
        """Raise ProblemError `foreign_board` if the token allows neither a board by these names nor its family."""
        if self.boards.isdisjoint(names) and self.families.isdisjoint(name.partition(":")[0] for name in names):
            raise ProblemError("foreign_board", "the token does not name this leaderboard, or its family")

    def check_family(self, family: str) -> None:
        if family not in self.families:
            raise ProblemError("foreign_board", "the token does not name this family")

    def number_posts(self, posts: Iterable[PostBody]) -> None:
        """Give each post the id that follows from its number. Raise ProblemError if the token does not allow a post."""
        for post in posts:
            self.check_owner(post.owner)
            if post.set or post.at is not msgspec.UNSET or post.post_id is not msgspec.UNSET:
                raise ProblemError("forbidden", 'a post by token has no "set", no "at" and no "post_id"')
            number = 0 if post.n is msgspec.UNSET else post.n
            if number >= self.posts:
                detail = f"the token allows {self.posts} posts, with the numbers 0 to {self.posts - 1}"
                raise ProblemError("token_used_up", detail, pointer="/n")
            post.post_id = f"token:{self.token_id}:{number}"

    def find_breach(self, spec: BoardSpec, changes: Sequence[ColumnChange]) -> ProblemError | None:
        """Return an error if a post brings a better value than the token allows, else None.

        In a column of sums whose high values are better, a post may not take more away than it could add, so that a
        thief cannot destroy what the owner has.
        """
        for change in changes:
            column = spec.columns[change.index]
            limit = self.limits.get(column.name)
            if limit is None or not isinstance(change.value, int):
                continue
            value = Decimal(format_decimal(change.value, column.scale))
            bound = "least" if column.best is Best.LOW else "most"
            if column.merge is Merge.SUM and column.best is Best.HIGH and value < -abs(limit):
                limit, bound = -abs(limit), "least"
            elif value >= limit if bound == "least" else value <= limit:
                continue
            detail = f"the token allows {column.name} of at {bound} {limit}"
            return ProblemError("post_limit", detail, pointer=f"/stats/{column.name}")
        return None
