"""The session of one connection: its caller, protocol version and transaction, and commands about the connection."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import Any

from service.contract.api_keys import ANONYMOUS, Identity
from service.contract.problems import ProblemError
from service.contract.values import parse_matching
from service.http.openapi import service_version

from .batches import Batch, Waiting, run_command
from .command_table import COMMANDS, Command
from .parts import DoorParts
from .wire import OK, Answer, Map, Refusal, Status, encode_answer, refuse

SERVED_AS = "7.2.0"  # the version of Redis that is reported to clients, which choose their commands by it
QUEUED_WEIGHT_MAX = 10_000  # the total weight of the commands between MULTI and EXEC, see `Command`
TURN_COMMANDS = 500  # after this many commands, other connections get a turn
_CLIENT_NAME = "^[!-~]*$"


class Session:
    def __init__(self, parts: DoorParts, number: int, close: Callable[[], None]) -> None:
        """Begin a session. `close` closes its connection, for example because the caller's key was revoked."""
        self.parts, self._number, self._close = parts, number, close
        self.version = 2
        self.ends = False  # whether to close the connection once the answers so far are sent
        self._name = b""
        self._watched = ExitStack()  # ends the watch over the caller's key
        self._queued: list[tuple[Command, Sequence[bytes]]] | None = None  # the commands since MULTI
        self._spoiled = False  # whether a command since MULTI was refused
        self.queued_bytes = 0  # the size of the commands since MULTI
        self.caller: Identity | None = None
        if parts.context.keyring.open:
            self._accept(parts.context.keyring.identify_caller(None))

    def _accept(self, caller: Identity) -> None:
        if caller.player is not None or caller is ANONYMOUS:
            raise Refusal("WRONGPASS this door takes API keys only")
        self._watched.close()
        self.caller = None
        self._watched.enter_context(self.parts.context.keyring.end_when_revoked(caller, self._end_caller))
        self.caller = caller

    def _end_caller(self) -> None:
        self.caller = None  # so that the rest of a pipeline is refused
        self._close()

    def end(self) -> None:
        self._watched.close()

    async def run(self, commands: Sequence[Sequence[bytes]], send: Callable[[bytes], Awaitable[None]]) -> None:
        """Run commands in order, and send their encoded answers. `send` waits until the client reads its answers."""
        if len(commands) == 1 and (command := COMMANDS.get(commands[0][0])) is not None and command.kind == "read":
            args = commands[0][1:]
            if self.caller is not None and self._queued is None and command.least <= len(args) <= command.most:
                # Most clients wait for each answer, and a read takes no batch.
                answer = await run_command(self.parts, Waiting(0, command, args, self.caller))
                await send(encode_answer(answer, self.version))
                return
        batch = Batch(self.parts)
        for number, words in enumerate(commands, 1):
            if number % TURN_COMMANDS == 0:
                await asyncio.sleep(0)
            name, args = words[0], words[1:]
            own = None if name in COMMANDS else _CONNECTION_COMMANDS.get(name.upper())
            if own is not None or self._queued is not None or self.caller is None:
                await batch.settle()
                batch.answers.append(await self._run_own(own, name, args))
                await self._send(batch, send)
                if self.ends:
                    return
                continue
            try:
                command = _find_command(name, args)
                if not batch.gather(command, args, self.caller):
                    await batch.add(command, args, self.caller)
                    await self._send(batch, send)
            except Refusal as refused:
                batch.answers.append(refused)
        await batch.settle()
        await self._send(batch, send)

    async def _send(self, batch: Batch, send: Callable[[bytes], Awaitable[None]]) -> None:
        ready = batch.take_ready()
        if ready:
            await send(b"".join([encode_answer(each, self.version) for each in ready]))

    async def _run_own(self, own: Any, name: bytes, args: Sequence[bytes]) -> Answer:
        """Run a command about the connection, or queue a command for EXEC."""
        try:
            if self.caller is None and own not in _WITHOUT_KEY:
                raise Refusal("NOAUTH Authentication required.")
            if own is not None:
                return await own(self, args)
            assert self._queued is not None
            command = _find_command(name, args)
            self.queued_bytes += sum(map(len, args))
            weight = sum([each.weight for each, _ in self._queued]) if command.weight > 1 else len(self._queued)
            if weight >= QUEUED_WEIGHT_MAX or self.queued_bytes > self.parts.settings.body_bytes_max:
                raise Refusal("ERR the transaction is too large")
            self._queued.append((command, args))
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
        self._forget_queued()
        self.version, self._name = 2, b""
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
        self._forget_queued()
        return OK

    async def execute(self, _: Sequence[bytes]) -> Answer:
        queued, spoiled = self._queued, self._spoiled
        self._forget_queued()
        if queued is None:
            raise Refusal("ERR EXEC without MULTI")
        if spoiled or self.caller is None:
            raise Refusal("EXECABORT Transaction discarded because of previous errors.")
        batch = Batch(self.parts)
        for command, args in queued:
            if not batch.gather(command, args, self.caller):
                await batch.add(command, args, self.caller)
        await batch.settle()
        return batch.take_ready()

    def _forget_queued(self) -> None:
        self._queued, self._spoiled, self.queued_bytes = None, False, 0


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
