"""The one reader of the journal that all streams of this process share.

    journal ──new rows of the boards that are watched──> topics ──an event each, at most──> their clients

The rule: every look is one snapshot, whatever the number of topics; it reads past what all of them have seen, so an
event's number says what a client has seen who comes back with it, to whichever process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from storage.errors import BoardChanged, NotRanked, StorageError, StoreBusy, UnknownBoard, UnknownOwner
from storage.journal import JournalRow, journal
from storage.store import Program, Store

from .events import Event, State, Topic

log = structlog.get_logger(__name__)
RESET = b"{}"


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """The feed's bounds; each is a setting of the same name."""

    stream_clients_max: int
    stream_poll_s: float
    stream_rows_max: int  # read in one look
    stream_heartbeat_s: float


class Client(Protocol):
    """Who gets events."""

    def send(self, event: Event) -> bool:
        """Hand an event over; False where the client is gone, or too slow and therefore let go."""

    def beat(self) -> bool:
        """Tell that the stream is alive; answers as `send`."""

    def end(self) -> None:
        """The stream is over."""


class FeedObserver(Protocol):
    """What the feed tells its operators."""

    def streams(self, clients: int) -> None:
        """Clients, after a change."""

    def streamed(self, *, rows: int, events: int, seconds: float) -> None:
        """A look found rows, and so many events went to clients."""


@dataclass(slots=True, eq=False)
class _Joining:
    """A client who has yet to get its first event."""

    key: Hashable
    make: Callable[[], Topic]
    last_seen: int | None
    client: Client
    done: asyncio.Future[None]


@dataclass(slots=True, eq=False)
class _Watched:
    topic: Topic
    state: State  # as clients have been told
    clients: set[Client] = field(default_factory=set)


@dataclass(slots=True)
class _Look:
    """What one snapshot led to, before anybody is told."""

    until: int
    published: int
    rows: int = 0
    lost: bool = False  # the journal no longer has what comes next
    events: list[tuple[_Watched, Event]] = field(default_factory=list)
    gone: list[_Watched] = field(default_factory=list)
    joined: list[tuple[_Joining, Topic | Exception, list[Event]]] = field(default_factory=list)


class Feed:
    """Looks while there are clients."""

    def __init__(
        self,
        store: Store,
        limits: FeedLimits,
        observer: FeedObserver,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._store, self._limits, self._observer = store, limits, observer
        self._journal = journal(store.dialect)
        self._monotonic, self._sleep = monotonic, sleep
        self._topics: dict[Hashable, _Watched] = {}
        self._joining: list[_Joining] = []
        self._seen: int | None = None  # what all topics are as of
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._beaten_s = 0.0

    @property
    def clients(self) -> int:
        """How many there are."""
        return len(self._joining) + sum(len(watched.clients) for watched in self._topics.values())

    async def join(self, key: Hashable, make: Callable[[], Topic], client: Client, *, last_seen: int | None) -> None:
        """Have a client get a topic's events, the first ones before this returns; `make` makes the topic of `key`.

        `last_seen`: the number that the client comes back with, -1 for one that no journal has.

        Raises:
            StoreBusy: there are as many clients as there may be.
            StorageError: what the topic's state can't be read for.
        """
        if self._closed or self.clients >= self._limits.stream_clients_max:
            raise StoreBusy(f"{self.clients} streams are open, as many as stream_clients_max allows")
        done = asyncio.get_running_loop().create_future()
        self._joining.append(_Joining(key, make, last_seen, client, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="feed")
        await done

    def leave(self, key: Hashable, client: Client) -> None:
        """Let a client go."""
        watched = self._topics.get(key)
        if watched is not None:
            watched.clients.discard(client)
            if not watched.clients:
                del self._topics[key]
        self._observer.streams(self.clients)

    def close(self) -> None:
        """End every stream; a client resumes at another process."""
        self._closed = True
        for watched in self._topics.values():
            for client in watched.clients:
                client.end()
        for joining in self._joining:
            if not joining.done.done():
                joining.done.set_exception(StoreBusy("the service stops"))
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._topics or self._joining:
            started_s = self._monotonic()
            joining, self._joining = self._joining, []
            watched = dict(self._topics)
            try:
                look = await self._store.read(lambda: self._look(watched, joining), heavy=bool(joining))  # noqa: B023
            except Exception as error:
                log.warning("feed_failed", detail=str(error))
                _refuse(joining, error)
            else:
                events = self._tell(look)
                self._observer.streamed(rows=look.rows, events=events, seconds=self._monotonic() - started_s)
            self._beat()
            await self._sleep(self._limits.stream_poll_s)
        self._seen = None

    def _look(self, watched: dict[Hashable, _Watched], joining: list[_Joining]) -> Program[_Look]:
        for each in watched.values():
            each.topic.state = each.state  # a look that failed may have been on its way
        published = yield from self._journal.published()
        look = _Look(published, published)
        seen = look.until if self._seen is None else self._seen
        begins_after = yield from self._journal.begins_after()
        rows: list[JournalRow] = []
        boards = {each.topic.board.key for each in watched.values()}
        if seen < begins_after:
            look.lost = True
        elif boards and seen < look.until:
            rows = yield from self._journal.page(seen, limit=self._limits.stream_rows_max, boards=sorted(boards))
            if len(rows) == self._limits.stream_rows_max:
                look.until = rows[-1].number
        look.rows = len(rows)
        by_board: dict[int, list[JournalRow]] = {}
        for row in rows:
            by_board.setdefault(row.board_key, []).append(row)
        for each in watched.values():
            yield from _follow(look, each, by_board.get(each.topic.board.key, []))
        begun: dict[Hashable, Topic] = {}
        for one in joining:
            yield from self._join(look, one, watched, begun, begins_after)
        return look

    def _join(
        self,
        look: _Look,
        one: _Joining,
        watched: dict[Hashable, _Watched],
        begun: dict[Hashable, Topic],
        begins_after: int,
    ) -> Program[None]:
        topic = watched[one.key].topic if one.key in watched else begun.get(one.key)
        try:
            if topic is None:
                topic = one.make()
                yield from topic.begin(look.until)
                begun[one.key] = topic
            first = yield from self._first_events(look, topic, one.last_seen, begins_after)
        except StorageError as error:
            look.joined.append((one, error, []))
            return
        look.joined.append((one, topic, first))

    def _first_events(
        self, look: _Look, topic: Topic, last_seen: int | None, begins_after: int
    ) -> Program[list[Event]]:
        last = topic.state.last
        assert last is not None
        state = last._replace(number=look.until)
        if last_seen is None:
            return [state]
        limit = self._limits.stream_rows_max
        rows: list[JournalRow] | None = None
        if begins_after <= last_seen <= look.published:
            rows = yield from self._journal.page(last_seen, limit=limit, boards=[topic.board.key])
        if rows is None or len(rows) == limit:
            return [Event(look.until, "reset", RESET), state]
        missed = topic.missed([row for row in rows if row.number <= look.until], look.until)
        return [] if missed is None else [missed]

    def _tell(self, look: _Look) -> int:
        self._seen = look.until
        sent = 0
        for watched in self._topics.values():
            watched.state = watched.topic.state
        for watched, event in look.events:
            sent += self._send(watched, [event])
        if look.lost:
            for watched in self._topics.values():
                last = watched.topic.state.last
                assert last is not None
                sent += self._send(watched, [Event(look.until, "reset", RESET), last])
        for watched in look.gone:
            for client in watched.clients:
                client.end()
        for one, topic, first in look.joined:
            if one.done.done():  # who asked is gone
                continue
            if isinstance(topic, Exception):
                one.done.set_exception(topic)
                continue
            watched = self._topics.setdefault(one.key, _Watched(topic, topic.state))
            watched.clients.add(one.client)
            sent += self._send(watched, first, [one.client])
            one.done.set_result(None)
        self._observer.streams(self.clients)
        return sent

    def _send(self, watched: _Watched, events: Sequence[Event], clients: Sequence[Client] | None = None) -> int:
        sent = 0
        for client in list(watched.clients) if clients is None else clients:
            if all(client.send(event) for event in events):
                sent += len(events)
            else:
                client.end()
        return sent

    def _beat(self) -> None:
        now_s = self._monotonic()
        if now_s - self._beaten_s < self._limits.stream_heartbeat_s:
            return
        self._beaten_s = now_s
        for watched in self._topics.values():
            for client in watched.clients:
                if not client.beat():
                    client.end()


def _follow(look: _Look, each: _Watched, rows: Sequence[JournalRow]) -> Program[None]:
    try:
        if look.lost:
            yield from each.topic.begin(look.until)
        elif rows:
            event = yield from each.topic.follow(rows, look.until)
            if event is not None:
                look.events.append((each, event))
    except (UnknownBoard, BoardChanged, UnknownOwner, NotRanked):
        look.gone.append(each)  # coming back, its clients are told what became of it


def _refuse(joining: Sequence[_Joining], error: Exception) -> None:
    refused = error if isinstance(error, StorageError) else StoreBusy("the journal could not be read")
    for one in joining:
        if not one.done.done():
            one.done.set_exception(refused)
