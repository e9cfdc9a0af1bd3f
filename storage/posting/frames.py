"""The messages between the owner of a SQLite store and its front processes, and the connection that carries them.

    front ──PostFrame: requests with posts──> owner ──AnswerFrame: an outcome or a failure for each request──> front

A frame is a MessagePack document prefixed with its length. On each new connection the owner first sends an
`AnswerFrame` with the version of its frames. It tells the front that the owner is ready, and whether the two understand
each other: an owner started after an upgrade does not understand fronts from before the upgrade. After that, the owner
sends an empty frame every `HEARTBEAT_S` seconds.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import msgspec
import structlog

from storage import errors, records
from storage.errors import StorageError
from storage.records import Leaf, PartOutcome, Post, TracedOutcome

from . import packed_posts
from .packed_posts import PackedPost, pack_posts, unpack_post

log = structlog.get_logger(__name__)
HEARTBEAT_S = 1.0
# Processes understand each other's frames if they run the same source of these modules, which say what is in a frame.
VERSION = hashlib.sha256(
    b"".join(Path(path).read_bytes() for path in (__file__, packed_posts.__file__, records.__file__, errors.__file__))
).hexdigest()
FRAME_BYTES_MAX = 1024**3  # no request is as large, so a longer frame is garbage
LEAVES_KEPT_MAX = 2_000  # how many leaves the owner keeps decoded; most frames name known ones
_LENGTH_BYTES = 4
Outcomes = list[list[PartOutcome]]  # for each post of a request, its outcome on each of its leaves
Answer = tuple[int, Outcomes | None, StorageError | None]  # the number of a request, and its outcomes or its error


class PostFrame(msgspec.Struct, array_like=True, gc=False):
    deadline_s: float  # the time of `time.monotonic` until which the posts may be applied; the same in all processes
    leaves: list[bytes]  # the leaves that the posts name by index
    requests: list[tuple[int, list[PackedPost]]]  # each request's number, and its posts
    is_store_damaged: bool = False  # whether the front has found damaged data


class TracingFrame(PostFrame, array_like=True, gc=False):
    """A frame with requests whose posts set `Post.tells_before`, a rare case that ordinary frames need no field for."""

    traced: list[int] = []  # the numbers of these requests


class AnswerFrame(msgspec.Struct, array_like=True, gc=False):
    answers: list[Answer]
    version: str = ""  # in the first frame of a connection: `VERSION` of the owner


class _ReceivedAnswers(msgspec.Struct, array_like=True, gc=False):
    """An `AnswerFrame` as it arrives. A `PartOutcome` arrives as a `TracedOutcome` without cells."""

    answers: list[tuple[int, list[list[TracedOutcome]] | None, StorageError | None]]
    version: str = ""


def _encode_error(error: Any) -> tuple[str, str, str | None, float | None]:
    return type(error).__name__, error.detail, error.pointer, error.retry_after_s


def _decode_error(_: type, encoded: Any) -> StorageError:
    name, detail, pointer, retry_after_s = encoded
    kind: type[StorageError] = getattr(errors, name)
    return kind(detail, pointer=pointer, retry_after_s=retry_after_s)


encode_posts = msgspec.msgpack.Encoder().encode
decode_posts = msgspec.msgpack.Decoder(TracingFrame).decode
encode_answers = msgspec.msgpack.Encoder(enc_hook=_encode_error).encode
decode_answers = msgspec.msgpack.Decoder(_ReceivedAnswers, dec_hook=_decode_error).decode
# Equal bytes give the same object, so posts of all fronts to one leaf share the object, and its compiled statements.
_decode_leaf = lru_cache(LEAVES_KEPT_MAX)(msgspec.msgpack.Decoder(Leaf).decode)


def make_post_frame(requests: Sequence[tuple[int, Sequence[Post]]], deadline_s: float) -> PostFrame:
    """Build a frame from requests, each a pair of a number and the request's posts."""
    leaves: dict[int, tuple[int, Leaf]] = {}
    packed = [(number, pack_posts(posts, leaves, None)) for number, posts in requests]
    encoded = [leaf.encoded for _, leaf in leaves.values()]
    traced = [number for number, posts in requests if posts and posts[0].tells_before]
    if traced:
        return TracingFrame(deadline_s, encoded, packed, False, traced)
    return PostFrame(deadline_s, encoded, packed)


def unpack_requests(frame: TracingFrame) -> list[tuple[int, list[Post]]]:
    leaves = [_decode_leaf(each) for each in frame.leaves]
    requests = [
        (number, [unpack_post(each, [leaves[index] for index in each.boards]) for each in posts])
        for number, posts in frame.requests
    ]
    for number, posts in requests if frame.traced else ():
        for post in posts:
            post.tells_before = number in frame.traced
    return requests


class FrameLink(asyncio.Protocol):
    def __init__(
        self,
        receive: Callable[["FrameLink", bytes], None],
        lost: Callable[["FrameLink"], None],
        made: Callable[["FrameLink"], None] | None = None,
    ) -> None:
        """Call `made` when the connection is established, `receive` for each frame, and `lost` when it ends."""
        self._receive, self._lost, self._made = receive, lost, made
        self._arrived = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._made is not None:
            self._made(self)

    def data_received(self, data: bytes) -> None:
        arrived = self._arrived
        arrived += data
        begin = 0
        while len(arrived) - begin >= _LENGTH_BYTES:
            length = int.from_bytes(arrived[begin : begin + _LENGTH_BYTES])
            end = begin + _LENGTH_BYTES + length
            if length > FRAME_BYTES_MAX:
                self._transport.abort()
                return
            if len(arrived) < end:
                break
            try:
                self._receive(self, bytes(arrived[begin + _LENGTH_BYTES : end]))
            except msgspec.MsgspecError as error:  # the other end runs another version
                log.error("frame_not_understood", detail=str(error))
                self._transport.abort()
                return
            begin = end
        if begin:
            del arrived[:begin]

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(self)

    def send(self, frame: bytes) -> None:
        self._transport.write(len(frame).to_bytes(_LENGTH_BYTES) + frame)

    def stop_receiving(self) -> None:
        self._transport.pause_reading()

    def close(self) -> None:
        self._transport.close()
