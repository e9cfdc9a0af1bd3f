"""Runs the commands of a pipeline in order: posts in one transaction, reads concurrently, all other commands alone.

Consecutive commands of the same kind gather until a command of another kind arrives. Their answers are sent in the
order of the commands.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from service.contract.api_keys import Identity, make_forbidden
from storage.errors import BoardChangedError, UnknownBoardError

from .command_table import Command
from .parts import DoorParts
from .sorted_set_posts import Posts
from .wire import Answer, BoardRefusal, Refusal, refuse

READS_WEIGHT_MAX = 500  # the total weight of one connection's concurrent reads, see `Command`
POSTS_MAX = 10_000  # posts in one transaction; a longer pipeline takes several transactions
TRIES_PAUSES_S = (0.0, 0.05, 0.2)  # before a command is retried, because this process's copy of a board was outdated


class Waiting(NamedTuple):
    """A command that has not run yet, and the number of its answer."""

    number: int
    command: Command
    args: Sequence[bytes]
    caller: Identity
    posts: Posts | None = None


class Batch:
    def __init__(self, parts: DoorParts) -> None:
        self._parts = parts
        self.answers: list[Answer] = []  # the answers that `take_ready` has not returned yet
        self._taken = 0
        self._kind = ""
        self._waiting: list[Waiting] = []
        self._weight = 0  # of the waiting commands: the number of their posts, or the sum of the reads' weights

    def gather(self, command: Command, args: Sequence[bytes], caller: Identity) -> bool:
        """Add a command to the waiting ones and return True, or return False if only `add` can handle it.

        Nearly every command of a pipeline needs no more than this, and so takes no step of the event loop.
        """
        if command.kind != self._kind or caller.role < command.role:
            return False
        made, weight = None, self._weight + command.weight
        if command.kind == "post":
            try:
                made = command.run(self._parts, args, caller)
            except Exception:  # `add` tries again, and answers
                return False
            weight = self._weight + len(made.posts)
        if weight > (READS_WEIGHT_MAX if made is None else POSTS_MAX) or command.kind == "alone":
            return False
        self._weight = weight
        self._waiting.append(Waiting(self._taken + len(self.answers), command, args, caller, made))
        self.answers.append(None)
        return True

    async def add(self, command: Command, args: Sequence[bytes], caller: Identity) -> None:
        """Run the waiting commands, then add this one. Create the board of an unknown key if the command does so."""
        await self.settle()
        if caller.role < command.role:
            self.answers.append(refuse(make_forbidden(caller, command.role)))
            return
        each = Waiting(self._taken + len(self.answers), command, args, caller)
        self.answers.append(None)
        self._kind = command.kind
        if command.kind == "post":
            try:
                each = each._replace(posts=await self._find_and_make(each))
                if each.posts is not None and len(each.posts.posts) > POSTS_MAX:
                    raise Refusal(f"ERR one command posts at most {POSTS_MAX} members")
            except Exception as error:
                self._answer(each, _answer_to(self._parts, each, error))
                return
        self._waiting.append(each)
        self._weight = command.weight if each.posts is None else len(each.posts.posts)
        if command.kind == "alone":
            await self.settle()

    def take_ready(self) -> list[Answer]:
        """Return the answers that are ready, up to the first command that has not run. Each answer is returned once."""
        count = self._waiting[0].number - self._taken if self._waiting else len(self.answers)
        ready, self.answers = self.answers[:count], self.answers[count:]
        self._taken += count
        return ready

    async def settle(self) -> None:
        """Run all waiting commands."""
        waiting, self._waiting, self._weight = self._waiting, [], 0
        if not waiting:
            return
        if self._kind == "post":
            await self._post(waiting)
            return
        found = await asyncio.gather(*[run_command(self._parts, each) for each in waiting])
        for each, answer in zip(waiting, found, strict=True):
            self._answer(each, answer)

    def _answer(self, each: Waiting, answer: Answer) -> None:
        self.answers[each.number - self._taken] = answer

    async def _find_and_make(self, each: Waiting) -> Posts:
        """Return a command's posts. Confirm a refusal that rests on this process's copy of the board."""
        try:
            return await self._make_posts(each)
        except BoardRefusal:
            await self._parts.keys.confirm(each.args[0], text=each.command.text)
        return await self._make_posts(each)

    async def _make_posts(self, each: Waiting) -> Posts:
        """Return a command's posts. If this process does not know the board, read it from the store, or create it."""
        keys, command, key = self._parts.keys, each.command, each.args[0]
        if keys.find_known(key, text=command.text) is None:
            if command.makes:
                await keys.make(key, each.caller, text=command.text)
            else:
                await keys.find(key, text=command.text)
        return command.run(self._parts, each.args, each.caller)  # type: ignore[no-any-return]

    async def _post(self, waiting: list[Waiting]) -> None:
        """Apply posts in one transaction. Retry commands whose copy of a board turned out to be outdated."""
        for pause_s in (*TRIES_PAUSES_S, None):
            made = [each.posts for each in waiting if each.posts is not None]
            try:
                posts, traced = [post for each in made for post in each.posts], any(each.traced for each in made)
                outcomes = iter(await self._parts.submit(posts, waiting[0].caller, traced=traced))
            except Exception as error:
                for each in waiting:
                    self._answer(each, _answer_to(self._parts, each, error))
                return
            again: list[Waiting] = []
            for each, theirs in zip(waiting, made, strict=True):
                found = [next(outcomes) for _ in theirs.posts]
                try:
                    self._answer(each, theirs.answer(found))
                except Refusal as refused:
                    self._answer(each, refused)
                    if all(isinstance(outcome.error, UnknownBoardError) for outcome in found):
                        again.append(each)
            if not again or pause_s is None:
                return
            await asyncio.sleep(pause_s)
            waiting = await self._make_again(again)
            if not waiting:
                return

    async def _make_again(self, again: list[Waiting]) -> list[Waiting]:
        """Read these commands' boards from the store, and return the commands with posts to the boards as they are."""
        made = []
        for key, text in {(each.args[0], each.command.text) for each in again}:
            await self._parts.keys.confirm(key, text=text)
        for each in again:
            try:
                made.append(each._replace(posts=await self._find_and_make(each)))
            except Exception as error:
                self._answer(each, _answer_to(self._parts, each, error))
        return made


async def run_command(parts: DoorParts, each: Waiting) -> Answer:
    """Run a read, or a command that runs alone. Retry it if this process's copy of the board was outdated."""
    context, command, keys = parts.context, each.command, parts.keys
    more = () if command.kind == "read" else (each.caller,)
    try:
        if command.kind == "read" and context.key_limits.reads.is_set:
            context.key_limits.reads.admit(each.caller.key_id)
        is_confirmed = False
        for pause_s in (*TRIES_PAUSES_S, None):
            try:
                return await command.run(parts, each.args, *more)
            except (BoardChangedError, UnknownBoardError, BoardRefusal) as error:
                is_refusal, is_missing = isinstance(error, BoardRefusal), isinstance(error, UnknownBoardError)
                if pause_s is None or (is_refusal and is_confirmed):
                    raise
                if is_missing and keys.find_known(each.args[0], text=command.text) is None:
                    raise
                is_confirmed = True
            await asyncio.sleep(pause_s)
            await keys.confirm(each.args[0], text=command.text)
    except Exception as error:
        return _answer_to(parts, each, error)


def _answer_to(parts: DoorParts, each: Waiting, error: Exception) -> Answer:
    """Return the answer to a failed command: what Redis answers for an unknown key, or a refusal."""
    if isinstance(error, UnknownBoardError):
        absent = each.command.absent
        return absent(each.args) if callable(absent) else absent
    refused = refuse(error)
    if str(refused).startswith("ERR internal"):
        parts.context.request_log.log_failure(view="resp", error=error)
    return refused
