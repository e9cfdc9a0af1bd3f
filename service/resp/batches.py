"""Runs commands that arrived together, in order: posts in one transaction, reads at the same time, all others alone.

Commands of one kind gather until one of another kind comes. Answers keep the order of the commands.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from service.contract.api_keys import Identity, make_forbidden
from storage.errors import BoardChangedError, UnknownBoardError

from .command_table import Command
from .parts import DoorParts
from .sorted_set_posts import Posts
from .wire import Answer, Refusal, refuse

READS_WEIGHT_MAX = 500  # of the commands of one connection that read at the same time, see `Command`
POSTS_MAX = 10_000  # posts of one transaction; those of a longer pipeline take several
TRIES_PAUSES_S = (0.0, 0.05, 0.2)  # before a command runs again, because this process knew an old state of a board


class Waiting(NamedTuple):
    """A command that is to run, and the number of its answer."""

    number: int
    command: Command
    args: Sequence[bytes]
    caller: Identity
    posts: Posts | None = None


class Batch:
    def __init__(self, parts: DoorParts) -> None:
        self._parts = parts
        self.answers: list[Answer] = []  # those that were not taken yet
        self._taken = 0
        self._kind = ""
        self._waiting: list[Waiting] = []
        self._weight = 0  # of what waits: posts, or the weights of reads

    def gather(self, command: Command, args: Sequence[bytes], caller: Identity) -> bool:
        """Add a command to others of its kind, and return True, or return False if `add` has to do it.

        This is what nearly every command of a pipeline needs, without a step of the event loop.
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
        """Add a command, after those before it have run. Make the board of an unknown key if the command does that."""
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
        """Return the answers to commands before the first that has not run, without those taken before."""
        count = self._waiting[0].number - self._taken if self._waiting else len(self.answers)
        ready, self.answers = self.answers[:count], self.answers[count:]
        self._taken += count
        return ready

    async def settle(self) -> None:
        """Run what has gathered."""
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
        """Return the posts of a command. If this process does not know its board, find or make it."""
        keys, command, key = self._parts.keys, each.command, each.args[0]
        if keys.find_known(key, text=command.text) is None:
            if command.makes:
                await keys.make(key, each.caller, text=command.text)
            else:
                await keys.find(key, text=command.text)
        return command.run(self._parts, each.args, each.caller)  # type: ignore[no-any-return]

    async def _post(self, waiting: list[Waiting]) -> None:
        """Apply posts in one transaction. Make those again for which a copy of a board was outdated."""
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
        """Return the commands with posts to the boards as they are now."""
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
    """Run a read, or a command that runs alone. Run it again if a copy of its board was outdated."""
    context, command, keys = parts.context, each.command, parts.keys
    more = () if command.kind == "read" else (each.caller,)
    try:
        if command.kind == "read" and context.key_limits.reads.is_set:
            context.key_limits.reads.admit(each.caller.key_id)
        for pause_s in (*TRIES_PAUSES_S, None):
            try:
                return await command.run(parts, each.args, *more)
            except (BoardChangedError, UnknownBoardError) as error:
                is_missing = isinstance(error, UnknownBoardError)
                if pause_s is None or (is_missing and keys.find_known(each.args[0], text=command.text) is None):
                    raise
            await asyncio.sleep(pause_s)
            await keys.confirm(each.args[0], text=command.text)
    except Exception as error:
        return _answer_to(parts, each, error)


def _answer_to(parts: DoorParts, each: Waiting, error: Exception) -> Answer:
    """Return the answer to a command that failed: what Redis answers about an unknown key, or a refusal."""
    if isinstance(error, UnknownBoardError):
        absent = each.command.absent
        return absent(each.args) if callable(absent) else absent
    refused = refuse(error)
    if str(refused).startswith("ERR internal"):
        parts.context.request_log.log_failure(view="resp", error=error)
    return refused
