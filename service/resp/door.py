"""Listens for Redis clients, and limits their connections, the bytes that arrive, and the answers left unread.

    bytes ──> CommandParser ──> waiting commands ──one batch at a time──> Session.run ──> answers

The service stops reading from a connection that has too many commands waiting, or whose client does not read its
answers. So neither a slow client nor a huge pipeline takes unbounded memory, and other connections carry on.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import structlog

from service.context import Context
from service.contract.problems import ServiceError
from storage.records import BoardSpec

from .parts import DoorParts
from .session import Session
from .wire import CommandParser, ProtocolFault, Refusal, encode_answer, refuse

log = structlog.get_logger(__name__)
CONNECTIONS_MAX = 10_000  # in one process
BACKLOG_CONNECTIONS = 1_024
STRANGER_BYTES_MAX = 16 * 1024  # what a client may send before it has authenticated
COMMANDS_WAITING_MAX = 1_000  # while this many commands wait, no more are read from the connection
GATHER_TURNS = 2  # for how many turns of the event loop a batch waits for the rest of its pipeline


class NoParserError(ServiceError):
    """The setting resp_port needs hiredis, which the extra `resp` installs: pip install 'rankcurve[resp]'."""

    def __str__(self) -> str:
        return self.__class__.__doc__ or ""


class Connection(asyncio.Protocol):
    def __init__(self, parts: DoorParts, number: int) -> None:
        self._parts, self._number = parts, number
        self._parser = CommandParser()
        self._commands: list[list[bytes]] = []
        self._held_bytes = 0  # this connection's share of `DoorParts.arriving_bytes`
        self._task: asyncio.Task[None] | None = None
        self._readable = asyncio.Event()  # set while the client reads its answers
        self._readable.set()
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        self._parts.connections.add(self)
        if len(self._parts.connections) > CONNECTIONS_MAX:
            self._close_with(Refusal("ERR max number of clients reached"))
            return
        try:
            self._session = Session(self._parts, self._number, self._abort)
        except Exception as error:
            self._close_with(refuse(error))
            return
        if self._session.caller is None:
            wait_s = self._parts.settings.head_wait_s_max
            self._deadline = asyncio.get_running_loop().call_later(wait_s, self._end_stranger)

    def connection_lost(self, _: Exception | None) -> None:
        self._parts.connections.discard(self)
        self._hold(0)
        self._transport = None
        self._readable.set()
        if self._deadline is not None:
            self._deadline.cancel()
        if self._session is not None:
            self._session.end()

    def pause_writing(self) -> None:
        self._readable.clear()

    def resume_writing(self) -> None:
        self._readable.set()

    def data_received(self, data: bytes) -> None:
        if self._session is None or self._transport is None or self._transport.is_closing():
            return
        try:
            self._commands += self._parser.feed(data)
            self._hold(self._held_bytes + len(data))
            self._check_size()
        except ProtocolFault as fault:
            self._commands.clear()
            self._close_with(Refusal(f"ERR {fault}"))
            return
        if len(self._commands) >= COMMANDS_WAITING_MAX or self._held_bytes > self._parts.settings.body_bytes_max:
            self._transport.pause_reading()
        if self._commands and self._task is None:
            self._task = asyncio.create_task(self._serve(), name="resp")

    def _check_size(self) -> None:
        settings, session = self._parts.settings, self._session
        most = STRANGER_BYTES_MAX if session is None or session.caller is None else settings.body_bytes_max
        if self._parser.pending_bytes > most:
            raise ProtocolFault(f"Protocol error: a command has at most {most} bytes")
        if self._parts.arriving_bytes > settings.arriving_bytes_max:
            raise ProtocolFault("too many bytes of all clients are arriving; try again later")

    def _hold(self, size: int) -> None:
        self._parts.arriving_bytes += size - self._held_bytes
        self._held_bytes = size

    async def _serve(self) -> None:
        """Run the commands that have arrived, and those that arrive meanwhile, until none is waiting."""
        session, transport = self._session, self._transport
        assert session is not None
        assert transport is not None
        try:
            while self._commands and not transport.is_closing():
                for _ in range(GATHER_TURNS if self._parser.pending_bytes else 0):
                    await asyncio.sleep(0)
                commands, self._commands = self._commands, []
                await session.run(commands, self._send)
                if session.ends:
                    transport.close()
                if session.caller is not None and self._deadline is not None:
                    self._deadline.cancel()
                if not self._commands:
                    self._hold(self._parser.pending_bytes + session.queued_bytes)
                if not transport.is_closing():
                    transport.resume_reading()
        except Exception as error:
            self._parts.context.request_log.log_failure(view="resp", error=error)
            self._abort()
        finally:
            self._task = None

    async def _send(self, answers: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(answers)
        await self._readable.wait()

    def _end_stranger(self) -> None:
        if self._session is None or self._session.caller is None:
            self._abort()

    def _close_with(self, refused: Refusal) -> None:
        if self._transport is not None:
            self._transport.write(encode_answer(refused, 2))
            self._transport.close()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def stop(self) -> None:
        """Let the running commands finish and answer, then close the connection."""
        self._commands.clear()
        task, transport = self._task, self._transport
        if transport is not None:
            transport.pause_reading()
        self._readable.set()
        if task is not None:
            await asyncio.wait([task])
        if transport is not None:
            transport.close()


@asynccontextmanager
async def open_door(
    context: Context, new_board: BoardSpec | None, port: int, *, reuse_port: bool = False
) -> AsyncIterator[list[str]]:
    """Listen for Redis clients within the block, and provide the addresses. At the end, let running commands finish.

    `new_board` has the columns and rules of the boards that posts to unknown keys create. If it is None, such posts
    create no boards.

    Raises:
        NoParserError: hiredis is not installed.
        OpenToOthersError: there is no API key, but other machines could reach the port.
    """
    try:
        CommandParser()
    except ImportError as error:
        raise NoParserError from error
    settings = context.settings
    context.keyring.check_binding(settings.host)
    parts, numbers = DoorParts(context, new_board), itertools.count(1)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(parts, next(numbers)),
        settings.host,
        port,
        reuse_port=reuse_port,
        backlog=BACKLOG_CONNECTIONS,
    )
    try:
        addresses = [f"{address[0]}:{address[1]}" for address in (each.getsockname() for each in server.sockets)]
        log.info("listening_for_redis_clients", addresses=addresses)
        yield addresses
    finally:
        server.close()
        stopping = [
            asyncio.create_task(each.stop()) for each in list(parts.connections) if isinstance(each, Connection)
        ]
        if stopping:
            await asyncio.wait(stopping, timeout=settings.shutdown_s)
