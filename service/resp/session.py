"""One connection: who calls, transactions, and the batches in which its commands run.

Commands that arrived together run in order. Posts that follow each other are one transaction, reads that follow each
other run at the same time and share statements, and every other command runs alone. Answers keep the order.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from service.contract.api_keys import ANONYMOUS, Identity, make_forbidden
from service.contract.problems import ProblemError
from service.contract.values import parse_matching
from service.http.openapi import service_version
from storage.errors import BoardChangedError, UnknownBoardError
from storage.records import PartOutcome

from .command_table import COMMANDS, Command
from .parts import DoorParts
from .sorted_set_posts import Posts
from .wire import OK, Answer, Map, Refusal, Status, encode_answer, refuse

SERVED_AS = "7.2.0"  # the version of Redis by which clients choose their commands
READS_AT_ONCE = 500  # commands of one connection that read at the same time
POSTS_MAX = 10_000  # posts of one transaction; those of a longer pipeline take several
QUEUED_MAX = 10_000  # commands between MULTI and EXEC
TURN_COMMANDS = 500  # commands after which other connections run
TRIES_PAUSES_S = (0.0, 0.05, 0.2)  # before a command runs again, because this process knew an old state of a board
_CLIENT_NAME = "^[!-~]*$"


class _Waiting(NamedTuple):
    """A post or read of the current batch, and where its answer goes."""

    place: int
    command: Command
    args: Sequence[bytes]
    posts: Posts | None = None


class Session:
    def __init__(self, parts: DoorParts, number: int, close: Callable[[], None]) -> None:
        """`close` closes the connection, for example because its key was revoked."""
        self.parts, self._number, self._close = parts, number, close
        self.version = 2
        self.ends = False  # whether the connection is to be closed after the answers so far
        self._name = b""
        self._watched = ExitStack()  # ends the watch over the caller's key
        self._queued: list[tuple[Command, Sequence[bytes]]] | None = None  # the commands since MULTI
        self._spoiled = False  # whether a command since MULTI was refused
        self.caller: Identity | None = None
        if parts.context.keyring.open:
            self._accept(parts.context.keyring.identify_caller(None))

    def _accept(self, caller: Identity) -> None:
        if caller.player is not None or caller is ANONYMOUS:
            raise Refusal("WRONGPASS this door takes API keys only")
        self._watched.close()
        self._watched.enter_context(self.parts.context.keyring.end_when_revoked(caller, self._close))
        self.caller = caller

    def end(self) -> None:
        self._watched.close()

    async def run(self, commands: Sequence[Sequence[bytes]]) -> bytes:
        """Run commands in order, and return the bytes of their answers."""
        batch, encoded = _Batch(self.parts), list[bytes]()
        for number, [name, *args] in enumerate(commands, 1):
            if number % TURN_COMMANDS == 0:
                await asyncio.sleep(0)
            own = _CONNECTION_COMMANDS.get(name) or _CONNECTION_COMMANDS.get(name.upper())
            if own is not None or self._queued is not None or self.caller is None:
                encoded += [encode_answer(each, self.version) for each in await batch.finish()]
                encoded.append(encode_answer(await self._run_own(own, name, args), self.version))
                if self.ends:
                    break
            else:
                try:
                    await batch.add(_find_command(name, args), args, self.caller)
                except Refusal as refused:
                    batch.answers.append(refused)
        encoded += [encode_answer(each, self.version) for each in await batch.finish()]
        return b"".join(encoded)

    async def _run_own(self, own: Any, name: bytes, args: Sequence[bytes]) -> Answer:
        """Run a command about the connection, or queue a command for EXEC."""
        try:
            if self.caller is None and own not in _WITHOUT_KEY:
                raise Refusal("NOAUTH Authentication required.")
            if own is not None:
                return await own(self, args)
            assert self._queued is not None
            if len(self._queued) >= QUEUED_MAX:
                raise Refusal(f"ERR a transaction has at most {QUEUED_MAX} commands")
            self._queued.append((_find_command(name, args), args))
            return Status("QUEUED")
        except (Refusal, ProblemError) as error:
            self._spoiled = self._queued is not None
            return refuse(error)

    async def authenticate(self, args: Sequence[bytes]) -> Answer:
        if not 1 <= len(args) <= 2:
            raise Refusal("ERR wrong number of arguments for 'auth' command")
        try:
            self._accept(self.parts.context.keyring.identify_caller(f"Bearer {args[-1].decode()}"))
        except (ProblemError, UnicodeDecodeError):
            raise Refusal("WRONGPASS invalid username-password pair or user is disabled.") from None
        return OK

    async def greet(self, args: Sequence[bytes]) -> Answer:
        left, version = list(args), self.version
        if left:
            if left[0] not in (b"2", b"3"):
                raise Refusal("NOPROTO unsupported protocol version")
            version = int(left.pop(0))
        while left:
            option = left.pop(0).upper()
            if option == b"AUTH" and len(left) >= 2:
                await self.authenticate([left.pop(0), left.pop(0)])
            elif option == b"SETNAME" and left:
                self._set_name(left.pop(0))
            else:
                raise Refusal("ERR Syntax error in HELLO option")
        if self.caller is None:
            raise Refusal("NOAUTH HELLO must be called with the client already authenticated, or with AUTH")
        self.version = version
        facts = {"server": "redis", "version": SERVED_AS, "proto": version, "id": self._number}
        return Map({**facts, "mode": "standalone", "role": "master", "modules": []})

    def _set_name(self, name: bytes) -> None:
        try:
            parse_matching(name.decode("utf-8", "replace"), pattern=_CLIENT_NAME, what="a name", pointer="name")
        except (ProblemError, KeyError):
            raise Refusal("ERR Client names cannot contain spaces, newlines or special characters.") from None
        self._name = name

    async def tell_client(self, args: Sequence[bytes]) -> Answer:
        what = args[0].upper() if args else b""
        if what == b"SETNAME" and len(args) == 2:
            self._set_name(args[1])
            return OK
        if what == b"SETINFO" and len(args) == 3:
            return OK
        if what == b"GETNAME":
            return self._name
        if what == b"ID":
            return self._number
        if what in (b"INFO", b"LIST"):
            return f"id={self._number} name={self._name.decode()} resp={self.version}\n"
        raise Refusal("ERR unknown subcommand of CLIENT")

    async def ping(self, args: Sequence[bytes]) -> Answer:
        if len(args) > 1:
            raise Refusal("ERR wrong number of arguments for 'ping' command")
        return args[0] if args else Status("PONG")

    async def echo(self, args: Sequence[bytes]) -> Answer:
        if len(args) != 1:
            raise Refusal("ERR wrong number of arguments for 'echo' command")
        return args[0]

    async def select(self, args: Sequence[bytes]) -> Answer:
        if list(args) != [b"0"]:
            raise Refusal("ERR DB index is out of range")
        return OK

    async def quit(self, _: Sequence[bytes]) -> Answer:
        self.ends = True
        return OK

    async def reset(self, _: Sequence[bytes]) -> Answer:
        self._queued, self._spoiled, self.version, self._name = None, False, 2, b""
        return Status("RESET")

    async def tell_commands(self, args: Sequence[bytes]) -> Answer:
        what = args[0].upper() if args else b""
        if what == b"COUNT":
            return len(COMMANDS)
        if what == b"DOCS":
            return Map()
        listed = COMMANDS if not what else {name.upper(): COMMANDS.get(name.upper()) for name in args[1:]}
        return [
            None if each is None else [
                name.lower(),
                1 + each.least if each.least == each.most else -1 - each.least,
                [Status("readonly" if each.kind == "read" else "write")],
                1,
                1,
                1,
            ]
            for name, each in listed.items()
        ]  # fmt: skip

    async def tell_server(self, _: Sequence[bytes]) -> Answer:
        facts = {
            "redis_version": SERVED_AS,
            "redis_mode": "standalone",
            "arch_bits": 64,
            "cluster_enabled": 0,
            "rankcurve_version": service_version(),
            "connected_clients": len(self.parts.connections),
        }
        return "# Server\r\n" + "".join([f"{name}:{value}\r\n" for name, value in facts.items()])

    async def begin_transaction(self, _: Sequence[bytes]) -> Answer:
        if self._queued is not None:
            raise Refusal("ERR MULTI calls can not be nested")
        self._queued, self._spoiled = [], False
        return OK

    async def discard(self, _: Sequence[bytes]) -> Answer:
        if self._queued is None:
            raise Refusal("ERR DISCARD without MULTI")
        self._queued, self._spoiled = None, False
        return OK

    async def execute(self, _: Sequence[bytes]) -> Answer:
        queued, self._queued = self._queued, None
        spoiled, self._spoiled = self._spoiled, False
        if queued is None:
            raise Refusal("ERR EXEC without MULTI")
        if spoiled or self.caller is None:
            raise Refusal("EXECABORT Transaction discarded because of previous errors.")
        batch = _Batch(self.parts)
        for command, args in queued:
            await batch.add(command, args, self.caller)
        return await batch.finish()


_CONNECTION_COMMANDS: dict[bytes, Callable[[Session, Sequence[bytes]], Coroutine[Any, Any, Answer]]] = {
    b"AUTH": Session.authenticate,
    b"HELLO": Session.greet,
    b"CLIENT": Session.tell_client,
    b"PING": Session.ping,
    b"ECHO": Session.echo,
    b"SELECT": Session.select,
    b"QUIT": Session.quit,
    b"RESET": Session.reset,
    b"COMMAND": Session.tell_commands,
    b"INFO": Session.tell_server,
    b"MULTI": Session.begin_transaction,
    b"DISCARD": Session.discard,
    b"EXEC": Session.execute,
}
_WITHOUT_KEY = (Session.authenticate, Session.greet, Session.quit, Session.reset)


def _find_command(name: bytes, args: Sequence[bytes]) -> Command:
    found = COMMANDS.get(name) or COMMANDS.get(name.upper())
    shown = name[:64].decode("utf-8", "backslashreplace")
    if found is None:
        raise Refusal(f"ERR unknown command '{shown}'")
    if not found.least <= len(args) <= found.most:
        raise Refusal(f"ERR wrong number of arguments for '{shown.lower()}' command")
    return found


class _Batch:
    """Runs commands in order. Commands of one kind gather until one of another kind comes, or `finish` is called."""

    def __init__(self, parts: DoorParts) -> None:
        self._parts = parts
        self.answers: list[Answer] = []
        self._kind = ""
        self._waiting: list[_Waiting] = []
        self._posts = 0
        self._caller: Identity | None = None

    async def add(self, command: Command, args: Sequence[bytes], caller: Identity) -> None:
        self._caller = caller
        if caller.role < command.role:
            self.answers.append(refuse(make_forbidden(caller, command.role)))
            return
        if command.kind != self._kind or (command.kind == "read" and len(self._waiting) >= READS_AT_ONCE):
            await self._settle()
            self._kind = command.kind
        place = len(self.answers)
        self.answers.append(None)
        if command.kind == "post":
            await self._add_posts(_Waiting(place, command, args), caller)
        else:
            self._waiting.append(_Waiting(place, command, args))
            if command.kind == "alone":
                await self._settle()

    async def finish(self) -> list[Answer]:
        """Run what has gathered, and return all answers since the last call."""
        await self._settle()
        answers, self.answers = self.answers, []
        return answers

    async def _add_posts(self, each: _Waiting, caller: Identity) -> None:
        try:
            try:
                made = each.command.run(self._parts, each.args, caller)
            except UnknownBoardError:
                await self._settle()  # the posts before it come first
                if not each.command.makes:
                    await self._parts.keys.find(each.args[0], text=each.command.text)
                else:
                    await self._parts.keys.make(each.args[0], caller, text=each.command.text)
                made = each.command.run(self._parts, each.args, caller)
            if self._posts + len(made.posts) > POSTS_MAX:
                await self._settle()
            if len(made.posts) > POSTS_MAX:
                raise Refusal(f"ERR one command posts at most {POSTS_MAX} members")
        except Exception as error:
            self.answers[each.place] = self._answer_of(each, error)
            return
        self._posts += len(made.posts)
        self._waiting.append(each._replace(posts=made))

    async def _settle(self) -> None:
        waiting, self._waiting, self._posts = self._waiting, [], 0
        if not waiting:
            return
        if self._kind == "post":
            await self._post(waiting)
        elif len(waiting) == 1:
            self.answers[waiting[0].place] = await self._run_one(waiting[0])
        else:
            found = await asyncio.gather(*[self._run_one(each) for each in waiting])
            for each, answer in zip(waiting, found, strict=True):
                self.answers[each.place] = answer

    async def _post(self, waiting: list[_Waiting]) -> None:
        """Apply posts in one transaction. Make those again for which a copy of a board was outdated."""
        assert self._caller is not None
        for pause_s in (None, *TRIES_PAUSES_S):
            if pause_s is not None:
                await asyncio.sleep(pause_s)
            try:
                outcomes = await self._submit([each.posts for each in waiting if each.posts is not None])
            except Exception as error:
                for each in waiting:
                    self.answers[each.place] = refuse(error)
                return
            again, begin = [], 0
            for each in waiting:
                assert each.posts is not None
                theirs = outcomes[begin : begin + len(each.posts.posts)]
                begin += len(theirs)
                if all(isinstance(outcome.error, UnknownBoardError) for outcome in theirs):
                    again.append(each)
                self.answers[each.place] = _answer_posts(each.posts, theirs)
            if not again:
                return
            waiting = await self._make_again(again)

    async def _submit(self, made: list[Posts]) -> list[PartOutcome]:
        assert self._caller is not None
        context, posts = self._parts.context, [post for each in made for post in each.posts]
        if context.key_limits.posts.is_set:
            context.key_limits.posts.admit(self._caller.key_id, len(posts))
        if any(each.traced for each in made):
            for post in posts:
                post.tells_before = True
        outcomes = [outcome for [outcome] in await context.posting.writer.submit(posts)]
        for status, count in Counter([outcome.status for outcome in outcomes]).items():
            context.metrics.meter.add("rankcurve_posts", count, status.value)
        return outcomes

    async def _make_again(self, again: list[_Waiting]) -> list[_Waiting]:
        """Return the posts of commands whose boards were deleted or changed since they were made."""
        assert self._caller is not None
        made = []
        for key, text in {(each.args[0], each.command.text) for each in again}:
            await self._parts.keys.confirm(key, text=text)
        for each in again:
            try:
                if each.command.makes:
                    await self._parts.keys.make(each.args[0], self._caller, text=each.command.text)
                made.append(each._replace(posts=each.command.run(self._parts, each.args, self._caller)))
            except Exception as error:
                self.answers[each.place] = self._answer_of(each, error)
        return made

    async def _run_one(self, each: _Waiting) -> Answer:
        """Run a read, or a command that runs alone. Run it again if a copy of its board was outdated."""
        context, command, args = self._parts.context, each.command, each.args
        assert self._caller is not None
        try:
            if command.kind == "read" and context.key_limits.reads.is_set:
                context.key_limits.reads.admit(self._caller.key_id)
            more = () if command.kind == "read" else (self._caller,)
            for pause_s in TRIES_PAUSES_S:
                try:
                    return await command.run(self._parts, args, *more)
                except (BoardChangedError, UnknownBoardError) as error:
                    known = self._parts.keys.find_known(args[0], text=command.text)
                    if known is None and isinstance(error, UnknownBoardError):
                        raise
                    await asyncio.sleep(pause_s)
                    await self._parts.keys.confirm(args[0], text=command.text)
            return await command.run(self._parts, args, *more)
        except Exception as error:
            return self._answer_of(each, error)

    def _answer_of(self, each: _Waiting, error: Exception) -> Answer:
        """Return the answer to a command that failed: what Redis answers about an unknown key, or a refusal."""
        if isinstance(error, UnknownBoardError):
            absent = each.command.absent
            return absent(each.args) if callable(absent) else absent
        return self._log(refuse(error), error)

    def _log(self, refused: Refusal, error: Exception) -> Refusal:
        if str(refused).startswith("ERR internal"):
            self._parts.context.request_log.log_failure(view="resp", error=error)
        return refused


def _answer_posts(posts: Posts, outcomes: Sequence[PartOutcome]) -> Answer:
    try:
        return posts.answer(outcomes)
    except Refusal as refused:
        return refused
