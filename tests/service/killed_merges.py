"""Kill a service again and again while it merges owners, then compare all entries with a model in plain Python.

Each owner has posts on many boards. A merge is repeated until it is answered. In the end, each post must count once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp

from tests.service.real_service import Caller

BOARDS = [f"b{number}" for number in range(25)]
_COLUMNS = [{"name": "xp", "merge": "sum"}, {"name": "best", "merge": "max"}, {"name": "last", "merge": "last"}]
_Row = dict[str, int]


@dataclass
class KilledMerges:
    """Merges `old-1` into `new-1` and so on. `kill` waits until it is time, then kills the service and starts it."""

    caller: Caller  # of the service that is killed; `kill` sets its address
    # Its other arguments are the owner who gets the entries, and the merge that waits for its answer.
    kill: Callable[[Caller, str, asyncio.Task[object]], Awaitable[None]]
    posts: int  # of each of the two owners
    rng: random.Random = field(default_factory=lambda: random.Random(5))
    under_way: int = 0  # kills before the answer to a merge
    faults: list[str] = field(default_factory=list)

    async def create_boards(self) -> None:
        for number, board in enumerate(BOARDS):
            columns = [{**column, "sorted": True} for column in _COLUMNS]
            body = {"columns": columns, "table": "shared" if number % 2 else "own"}
            await self.caller.must("PUT", f"/v1/leaderboards/{board}", body)

    async def run(self, kills: int) -> None:
        """Merge owners until the service was killed `kills` times during a merge."""
        number = 0
        while self.under_way < kills:
            number += 1
            old, new = f"old-{number}", f"new-{number}"
            expected = await self._post(old, new)
            answer = None
            while answer is None:
                answer = await self._merge(old, new, is_killed=self.under_way < kills)
            await self._check(old, new, expected, answer)

    async def _post(self, old: str, new: str) -> dict[str, _Row]:
        """Post to random boards, in one order. Return the rows that both owners together make."""
        rows: dict[str, _Row] = {}
        posts = []
        for number in range(2 * self.posts):
            board, value = self.rng.choice(BOARDS), self.rng.randrange(1_000)
            owner = self.rng.choice((old, new))
            stats = dict.fromkeys(("xp", "best", "last"), value)
            posts.append({"owner": owner, "boards": [board], "stats": stats, "post_id": f"{owner} {number}"})
            row = rows.setdefault(board, {"xp": 0, "best": 0, "last": 0})
            rows[board] = {"xp": row["xp"] + value, "best": max(row["best"], value), "last": value}
        for start in range(0, len(posts), 500):
            await self.caller.must("POST", "/v1/posts", {"posts": posts[start : start + 500]})
        return rows

    async def _merge(self, old: str, new: str, *, is_killed: bool) -> list[dict[str, object]] | None:
        """Merge the owners while the service is killed. Return what the answer says of boards, or None."""
        asked = asyncio.create_task(self.caller.must("POST", f"/v1/owners/{old}/merge", {"into": new}))
        if is_killed:
            await self.kill(self.caller, new, asked)
        with suppress(aiohttp.ClientError):
            return list((await asked)["boards"])
        self.under_way += 1
        return None

    async def _check(self, old: str, new: str, expected: dict[str, _Row], answer: list[dict[str, object]]) -> None:
        found: dict[str, _Row] = {}
        for board in BOARDS:
            entry = await self.caller.call("GET", f"/v1/leaderboards/{board}/entries/{new}")
            found |= {board: entry.body["stats"]} if entry.status == 200 else {}
            gone = await self.caller.call("GET", f"/v1/leaderboards/{board}/entries/{old}")
            if (gone.status, gone.body.get("code"), gone.body.get("into")) != (404, "owner_merged", new):
                self.faults.append(f"{old} on {board}: {gone.status} {gone.body}")
        if found != expected:
            self.faults.append(f"{new}: {found} instead of {expected}")
        if any(each.get("status") != "merged" for each in answer):
            self.faults.append(f"{old}: {answer}")
        post = {"owner": old, "boards": [BOARDS[0]], "stats": {"xp": 1}}
        [refused] = (await self.caller.must("POST", "/v1/posts", {"posts": [post]}))["results"]
        if refused["boards"][0]["error"]["code"] != "owner_merged":
            self.faults.append(f"a post to {old}: {refused}")
