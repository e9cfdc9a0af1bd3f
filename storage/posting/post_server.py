"""Receives the posts of front processes, in the process that owns a SQLite store. `remote_writer` draws both ends.

The owner's writer groups and merges these posts just like the owner's own.
"""

import asyncio
import sys
from functools import partial
from socket import socket
from time import monotonic
from typing import Any, cast

import structlog

from storage.errors import StorageError, WaitTooLongError

from .frames import (
    HEARTBEAT_S,
    VERSION,
    Answer,
    AnswerFrame,
    FrameLink,
    Outcomes,
    decode_posts,
    encode_answers,
    unpack_requests,
)
from .writer import Writer

log = structlog.get_logger(__name__)
# From Python 3.13 on, a server that is closed removes its socket, on which the next owner listens.
_KEEP_SOCKET: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}


class PostServer:
    def __init__(self, writer: Writer, damaged: asyncio.Event) -> None:
        """Pass received posts to `writer`. Set `damaged`, an event of the store, when a front reports damaged data."""
        self._writer, self._damaged = writer, damaged
        writer.gather_turns = 0  # a frame has the posts that its front gathered
        self._answers: dict[FrameLink, list[Answer]] = {}
        self._no_fronts = asyncio.Event()
        self._no_fronts.set()
        self._server: asyncio.Server | None = None
        self._beat: asyncio.TimerHandle | None = None

    async def listen(self, listening: socket) -> None:
        """Accept connections from fronts on a socket that another process has bound."""
        make_link = partial(FrameLink, self._receive, self._lose, self._accept)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(make_link, sock=listening, **_KEEP_SOCKET)
        self._send_heartbeats()

    def _accept(self, link: FrameLink) -> None:
        self._answers[link] = []
        self._no_fronts.clear()
        link.send(encode_answers(AnswerFrame([], VERSION)))

    def _send_heartbeats(self) -> None:
        for link in self._answers:
            link.send(encode_answers(AnswerFrame([])))
        self._beat = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._send_heartbeats)

    def _receive(self, link: FrameLink, frame: bytes) -> None:
        decoded = decode_posts(frame)
        if decoded.is_store_damaged:
            self._damaged.set()
        late = monotonic() > decoded.deadline_s
        for number, posts in unpack_requests(decoded):
            try:
                if late:
                    raise WaitTooLongError
                self._writer.enqueue(posts).done.add_done_callback(partial(self._answer, link, number))
            except StorageError as error:
                self._add_answer(link, (number, None, error))

    def _answer(self, link: FrameLink, number: int, done: "asyncio.Future[Outcomes]") -> None:
        error = done.exception()  # always a `StorageError`, as `Writer.submit` says
        outcomes = done.result() if error is None else None
        self._add_answer(link, (number, outcomes, cast(StorageError | None, error)))

    def _add_answer(self, link: FrameLink, answer: Answer) -> None:
        answers = self._answers.get(link)
        if answers is None:
            return  # the front has ended
        if not answers:
            asyncio.get_running_loop().call_soon(self._send, link)
        answers.append(answer)

    def _send(self, link: FrameLink) -> None:
        if answers := self._answers.get(link):
            link.send(encode_answers(AnswerFrame(answers)))
            answers.clear()

    def _lose(self, link: FrameLink) -> None:
        self._answers.pop(link, None)
        if not self._answers:
            self._no_fronts.set()

    async def close(self, wait_s_max: float) -> None:
        """Serve the fronts until all have ended, but at most `wait_s_max` seconds, then stop accepting connections."""
        try:
            async with asyncio.timeout(wait_s_max):
                await self._no_fronts.wait()
        except TimeoutError:
            log.warning("fronts_still_connected", fronts=len(self._answers))
        if self._server is not None:
            self._server.close()
        if self._beat is not None:
            self._beat.cancel()
        for link in self._answers:
            link.stop_receiving()
