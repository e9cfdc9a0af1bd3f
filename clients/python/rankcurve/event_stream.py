"""Follows a stream of server-sent events, and continues where it stopped after an interruption.

Connections break, and a proxy may close one after a minute. Each new request therefore carries the id of the last
event, so that the caller misses nothing unless the service says so with the event `reset`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .answers import Cohort, OwnerEvent, StreamEvent, TopEvent, decode
from .errors import ApiError, UnexpectedAnswerError, UnreachableError, one_line, refusal_of
from .programs import Items, Open, Pause, ReadChunk, Reply, Send, Walk
from .retries import Retries

EVENT_BYTES_MAX = 1 << 20
_TYPES: Mapping[str, type] = {"top": TopEvent, "position": OwnerEvent, "cohort": Cohort}
PAUSE_S = 1.0  # before a stream is opened again, unless the service asks for another time
PAUSE_S_MAX = 60.0
PAUSE_DIGITS_MAX = 9  # further digits of the milliseconds are ignored, because nine already mean the longest pause


@dataclass
class _Place:
    """The place where a stream stopped, and the bytes of an event that has not ended yet."""

    last_id: str
    pause_s: float = PAUSE_S
    rest: bytes = b""

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        *parts, self.rest = (self.rest + chunk).split(b"\n\n")
        if len(self.rest) > EVENT_BYTES_MAX:
            raise UnexpectedAnswerError(f"an event of the stream has more than {EVENT_BYTES_MAX:,} bytes")
        try:
            return [event for part in parts if (event := self._parse(part.decode())) is not None]
        except UnicodeDecodeError as cause:
            raise UnexpectedAnswerError("the stream does not come from rankcurve: it is not UTF-8") from cause

    def _parse(self, part: str) -> StreamEvent | None:
        fields = {}
        for line in part.split("\n"):
            name, colon, text = line.partition(":")
            if colon and name:
                fields[name] = text.removeprefix(" ")
        if fields.get("retry", "").isdecimal():
            self.pause_s = min(PAUSE_S_MAX, int(fields["retry"][:PAUSE_DIGITS_MAX]) / 1000)
        if "data" not in fields:
            return None
        self.last_id = check_id(fields.get("id", self.last_id))
        kind = fields.get("event", "message")
        data = decode(fields["data"].encode(), _TYPES[kind]) if kind in _TYPES else None
        return StreamEvent(event=kind, id=self.last_id, data=data)


def check_id(event_id: str) -> str:
    """Return an event's id if it can be sent as `Last-Event-ID`. Raises UnexpectedAnswerError otherwise."""
    if event_id.isascii() and event_id.isprintable():
        return event_id
    raise UnexpectedAnswerError(f"{one_line(event_id)!r} is not the id of an event")


def follow(path: str, last_id: str, retries: Retries, *, attempts_max: int) -> Walk[StreamEvent]:
    """Yield the events of a stream, which never ends by itself because it is reopened after each interruption.

    Raises ApiError if the service rejects the stream, and UnreachableError if `attempts_max` attempts in a row fail.
    """
    place, failed = _Place(check_id(last_id)), 0
    while True:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": place.last_id} if place.last_id else {})
        place.rest = b""
        try:
            reply: Reply = yield Open(Send("GET", path, headers=headers))
            if reply.status != 200:
                content = b""
                while chunk := (yield ReadChunk()):
                    content += chunk
                raise refusal_of(reply.status, content)
            while chunk := (yield ReadChunk()):
                failed = 0
                yield Items(place.feed(chunk))
        except ApiError as error:
            if error.status != 429 and error.status < 500:  # a stream that has no room now may be opened later
                raise
        except UnreachableError:
            pass
        failed += 1
        if failed >= attempts_max:
            raise UnreachableError(f"no answer: the stream could not be opened {failed:,} times in a row")
        yield Pause(place.pause_s + retries.draw_pause_s(failed))
