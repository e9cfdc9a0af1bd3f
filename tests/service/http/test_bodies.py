"""Test request bodies that arrive slowly, stop arriving, or are incomplete when the service stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest
from aiohttp import ClientConnectionResetError, web
from multidict import CIMultiDict

from config.settings import RequestSettings
from service.contract.problems import ProblemError
from service.http.bodies import BodyReader


def make_reader(**limits: int) -> BodyReader:
    """Return a reader that accepts at most 100 bytes for one body, and 250 bytes for all bodies together."""
    small = {"body_bytes_max": 100, "arriving_bytes_max": 250, **limits}
    return BodyReader(RequestSettings().model_copy(update=small))


@dataclass
class Upload:
    """A body that arrives in pieces, each after `pause_s` seconds. If a piece is None, nothing more arrives."""

    pieces: list[bytes | None]
    passes: Callable[[float], None]
    pause_s: float = 0
    content_length: int | None = None
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)

    @property
    def content(self) -> Upload:
        return self

    def is_eof(self) -> bool:
        return False

    def read_nowait(self) -> bytes:
        return b""

    async def readany(self) -> bytes:
        self.passes(self.pause_s)
        for _ in range(3):  # give the event loop time to run every due timer
            await asyncio.sleep(0)
        piece = self.pieces.pop(0) if self.pieces else b""
        return await asyncio.Future[bytes]() if piece is None else piece


@pytest.fixture
async def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that advances the clock of the running event loop."""
    loop = asyncio.get_running_loop()
    real, passed_s = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: real() + passed_s[0])

    def passes(seconds: float) -> None:
        passed_s[0] += seconds

    return passes


async def run_turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def read_and_release(upload: Upload, bodies: BodyReader) -> bytes:
    """Read the body of an upload and return it. Release it, as an endpoint does after it has answered the request."""
    request = cast(web.Request, upload)
    try:
        return await bodies.read_body(request)
    finally:
        bodies.release_body(request)


async def refusal_code(upload: Upload, bodies: BodyReader | None = None) -> str:
    with pytest.raises(ProblemError) as found:
        await read_and_release(upload, bodies or make_reader())
    return found.value.code


async def test_a_slow_body_is_read_while_it_keeps_arriving(passes: Callable[[float], None]) -> None:
    assert await read_and_release(Upload([b"x"] * 30, passes, pause_s=9), make_reader()) == b"x" * 30


async def test_a_body_that_pauses_too_long_is_refused(passes: Callable[[float], None]) -> None:
    assert await refusal_code(Upload([b"x", b"x"], passes, pause_s=11)) == "body_timeout"


async def test_a_body_that_never_ends_is_refused_however_steadily_it_arrives(passes: Callable[[float], None]) -> None:
    upload = Upload([b"x"] * 90, passes, pause_s=9)
    assert await refusal_code(upload) == "body_timeout"
    assert 90 - len(upload.pieces) == pytest.approx(300 / 9, abs=2)


async def test_a_body_is_refused_as_soon_as_it_is_known_to_be_too_large(passes: Callable[[float], None]) -> None:
    announced = Upload([b"x"], passes, content_length=101)
    assert await refusal_code(announced) == "body_too_large"
    assert announced.pieces == [b"x"], "no piece of the body was read"
    endless = Upload([b"x" * 60] * 9, passes)
    assert await refusal_code(endless) == "body_too_large"
    assert len(endless.pieces) == 7


async def test_a_stop_refuses_bodies_that_are_arriving_or_come_later(passes: Callable[[float], None]) -> None:
    bodies = make_reader()
    arriving = [asyncio.create_task(refusal_code(Upload([b"x", None], passes), bodies)) for _ in range(2)]
    await run_turns()
    assert not any(each.done() for each in arriving)
    bodies.refuse_arriving()
    assert await asyncio.gather(*arriving) == ["store_busy", "store_busy"]
    assert await refusal_code(Upload([b"x", None], passes), bodies) == "store_busy"


async def test_a_body_counts_towards_the_bound_until_its_request_is_answered(passes: Callable[[float], None]) -> None:
    bodies = make_reader()
    uploads = [cast(web.Request, Upload([b"x" * 100], passes, content_length=100)) for _ in range(2)]
    for each in uploads:
        await bodies.read_body(each)
    third = Upload([b"x" * 51], passes, content_length=51)
    assert await refusal_code(third, bodies) == "too_many_bodies"
    assert third.pieces == [b"x" * 51], "no piece of the body was read"
    assert await read_and_release(Upload([b"x" * 50], passes, content_length=50), bodies) == b"x" * 50
    bodies.release_body(uploads[0])
    bodies.release_body(uploads[0])
    assert await read_and_release(Upload([b"x" * 100], passes, content_length=100), bodies) == b"x" * 100
    assert await refusal_code(Upload([b"x" * 100] * 2, passes, content_length=None), bodies) == "body_too_large"


async def test_large_bodies_wait_until_those_that_are_being_answered_leave_room(
    passes: Callable[[float], None],
) -> None:
    """The objects made of five bodies of 8 MiB took 600 MiB."""
    bodies = make_reader(body_bytes_max=1_000_000, arriving_bytes_max=1_000_000, working_bytes_max=250_000)
    uploads = [cast(web.Request, Upload([b"x" * 100_000], passes, content_length=100_000)) for _ in range(4)]
    for each in uploads[:2]:
        await bodies.read_body(each)
    waiting = [asyncio.create_task(bodies.read_body(each)) for each in uploads[2:]]
    await run_turns()
    assert not any(each.done() for each in waiting)
    assert await read_and_release(Upload([b"x" * 60_000], passes), bodies) == b"x" * 60_000
    bodies.release_body(uploads[0])
    await run_turns()
    assert [each.done() for each in waiting] == [True, False]
    for each in uploads[1:3]:
        bodies.release_body(each)
    assert len(await waiting[1]) == 100_000


async def test_a_body_of_unknown_length_counts_with_the_bytes_received_so_far(passes: Callable[[float], None]) -> None:
    bodies = make_reader()
    arriving = [asyncio.create_task(read_and_release(Upload([b"x" * 90, None], passes), bodies)) for _ in range(2)]
    await run_turns()
    assert await read_and_release(Upload([b"x" * 35] * 2, passes), bodies) == b"x" * 70
    endless = Upload([b"x" * 24] * 9, passes)
    assert await refusal_code(endless, bodies) == "too_many_bodies"
    assert len(endless.pieces) == 6
    for each in arriving:
        each.cancel()


class Vanished(Upload):
    """A body whose sender closed the connection before the end."""

    async def readany(self) -> bytes:
        raise ClientConnectionResetError("gone")


@pytest.mark.parametrize("announced", [100, None])
async def test_a_body_returns_its_bytes_to_the_bound_however_it_ends(
    passes: Callable[[float], None], announced: int | None
) -> None:
    bodies = make_reader()
    for _ in range(3):
        assert await read_and_release(Upload([b"x" * 100], passes, content_length=announced), bodies) == b"x" * 100
        assert await refusal_code(Upload([b"x" * 90, b"x"], passes, 11, announced), bodies) == "body_timeout"
        assert await refusal_code(Upload([b"x" * 101], passes, content_length=announced), bodies) == "body_too_large"
        assert await refusal_code(Vanished([], passes, content_length=announced), bodies) == "bad_request"
        upload = Upload([b"x" * 90, None], passes, content_length=announced)
        given_up = asyncio.create_task(read_and_release(upload, bodies))
        await run_turns()
        given_up.cancel()
        await asyncio.wait([given_up])
    uploads = [Upload([b"x" * 100, None], passes, content_length=100) for _ in range(2)]
    full = [asyncio.create_task(refusal_code(each, bodies)) for each in uploads]
    await run_turns()
    assert not any(each.done() for each in full), "bodies that ended no longer count"
    bodies.refuse_arriving()
    assert await asyncio.gather(*full) == ["store_busy", "store_busy"]


async def test_a_large_body_arrives_as_it_was_sent(passes: Callable[[float], None]) -> None:
    sent = [bytes([number % 251]) * (number * 997 % 100_000) or b"x" for number in range(60)]
    bodies = make_reader(body_bytes_max=10**7, arriving_bytes_max=10**7)
    assert await read_and_release(Upload([*sent], passes), bodies) == b"".join(sent)
