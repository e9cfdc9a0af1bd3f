"""Let many clients race for the places and the attempts of a leaderboard with entry rules, and check that all agree.

Every answer is compared with the limits: no more owners and posts may be accepted than the rules allow, and none may be
refused while there is a free place or an attempt left. A request counts from when it is sent until its answer arrives.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.service.real_service import Caller

_BUSY = (429, 503)
_REPEATED_SHARE = 0.2  # of the accepted posts that are sent once more
_ERASED_SHARE = 4  # one in so many owners is erased between the two heats of a race


class Attempt(NamedTuple):
    """A request of an owner that was accepted (`code` is empty) or refused."""

    owner: str
    is_post: bool
    code: str
    sent_s: float
    answered_s: float


@dataclass
class EntryRace:
    """A race on one board. It has two heats; between them, some of the owners are erased, and their places are free."""

    callers: Sequence[Caller]  # a client of each process
    board: str
    join: bool
    owners_max: int
    posts_max: int
    clients: int
    rng: random.Random = field(default_factory=lambda: random.Random(3))
    attempts: list[Attempt] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)  # of the answers
    faults: list[str] = field(default_factory=list)

    async def run(self, **spec: Any) -> None:
        """Create the board, run both heats and check them. `spec`: further members of the specification."""
        rules = {"join": self.join, "owners_max": self.owners_max, "posts_max": self.posts_max}
        spec |= {"columns": [{"name": "xp", "merge": "sum"}], "entry": rules}
        await self.callers[0].must("PUT", f"/v1/leaderboards/{self.board}", spec)
        await self._run_heat(set())
        kept = await self._check_board()
        gone = self.rng.sample(sorted(kept), max(1, len(kept) // _ERASED_SHARE))
        for owner in gone:
            await self.rng.choice(self.callers).must("DELETE", f"/v1/leaderboards/{self.board}/entries/{owner}")
        self.attempts.clear()
        await self._run_heat(kept - {*gone})
        await self._check_board()

    async def _run_heat(self, kept: set[str]) -> None:
        """Let clients compete. `kept`: owners who have a place and no attempt left."""
        names = [f"o{number}" for number in range(self.owners_max * 3 // 2)]
        wanted = [owner for owner in names for _ in range(self.posts_max + 1)]
        self.rng.shuffle(wanted)

        async def play(number: int) -> None:
            for at in range(number, len(wanted), self.clients):
                await self._play(wanted[at], f"{number}-{at}-{len(kept)}")

        await asyncio.gather(*map(play, range(self.clients)))
        self._check_refusals(kept)

    async def _play(self, owner: str, post_id: str) -> None:
        if self.join:
            path = f"/v1/leaderboards/{self.board}/entries"
            if await self._send(path, {"owner": owner}, is_post=False):
                return
        path, post = f"/v1/leaderboards/{self.board}/posts", {"owner": owner, "stats": {"xp": 1}, "post_id": post_id}
        if not await self._send(path, post, is_post=True) and self.rng.random() < _REPEATED_SHARE:
            again = await self.rng.choice(self.callers).must("POST", path, post)
            if again["results"][0]["status"] != "duplicate":
                self.faults.append(f"a repeated post of {owner} was applied again")

    async def _send(self, path: str, body: Any, *, is_post: bool) -> str:
        """Send a request until it is answered. Return its error code, or an empty text."""
        sent_s = time.monotonic()
        while (answer := await self.rng.choice(self.callers).call("POST", path, body)).status in _BUSY:
            self.codes[answer.body["code"]] += 1
        code = "" if answer.status < 400 else str(answer.body["code"])
        self.codes[code or "accepted"] += 1
        self.attempts.append(Attempt(body["owner"], is_post, code, sent_s, time.monotonic()))
        return code

    def _check_refusals(self, kept: set[str]) -> None:
        """Check that each refusal had its reason: what filled the board was sent before the refusal was answered."""
        begun: dict[str, float] = dict.fromkeys(kept, 0.0)  # when the first accepted request of an owner was sent
        posts: dict[str, list[float]] = defaultdict(list, {owner: [0.0] * self.posts_max for owner in kept})
        for each in sorted(self.attempts, key=lambda each: each.sent_s):
            if not each.code:
                begun.setdefault(each.owner, each.sent_s)
                posts[each.owner] += [each.sent_s] if each.is_post else []
        for each in self.attempts:
            if (
                each.code == "board_full"
                and sum(sent_s < each.answered_s for sent_s in begun.values()) < self.owners_max
            ):
                self.faults.append(f"{each.owner} was refused while places were free")
            if each.code == "no_posts_left":
                used = sum(sent_s < each.answered_s for sent_s in posts[each.owner])
                if used < self.posts_max:
                    self.faults.append(f"a post of {each.owner} was refused after {used} others")
            if each.code not in ("", "board_full", "no_posts_left"):
                self.faults.append(f"a request of {each.owner} was refused: {each.code}")

    async def _check_board(self) -> set[str]:
        """Check that the board has exactly as many owners and posts as it may. Return its owners."""
        shown = await self.callers[0].get(f"/v1/leaderboards/{self.board}")
        rows = await self.callers[0].get(f"/v1/leaderboards/{self.board}/rankings/xp?limit=1000&order=owner")
        found = {row["owner"]: row["value"] for row in rows["entries"]}
        if not shown["owners"] == len(found) == self.owners_max:
            self.faults.append(f"{shown['owners']} owners and {len(found)} entries instead of {self.owners_max}")
        self.faults += [f"{owner} has {xp} posts" for owner, xp in found.items() if xp != self.posts_max]
        return {*found}
