"""The one reader of the journal that all streams of this process share.

    journal ──new rows of the boards that are watched──> topics ──an event each, at most──> their clients

The rule: every look is one snapshot, whatever the number of topics; it reads past what all of them have seen, so an
event's number says what a client has seen who comes back with it, to whichever process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from storage.errors import BoardChanged, NotRanked, StorageError, StoreBusy, UnknownBoard, UnknownOwner
from storage.gap_counts import Footing
from storage.journal import JournalRow, journal
from storage.leaderboards import ALL_ENTRIES, boards_by_id, count_entries
from storage.store import Program, Store

from .events import Event, State, Topic
from .glances import Glance, Slot

log = structlog.get_logger(__name__)
RESET = b"{}"


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """The feed's bounds; each is a setting of the same name."""

    stream_clients_max: int
    stream_poll_s: float
    stream_rows_max: int  # read in one look
    stream_heartbeat_s: float
    light_read_rows_max: int


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
    make: Callable[[], Topic]  # called before a look
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

    glance: Glance
    published: int
    rows: int = 0
    lost: bool = False  # the journal no longer has what comes next
    events: list[tuple[_Watched, Event]] = field(default_factory=list)
    gone: list[_Watched] = field(default_factory=list)
    joined: list[tuple[_Joining, Topic | Exception, list[Event]]] = field(default_factory=list)

    @property
    def until(self) -> int:
        """All rows up to this number are in."""
        return self.glance.until


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
        self._sizes: dict[int, int] = {}  # entries of boards on which counts start from the top
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._failure = ""  # of the last look
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
            # A context of its own: it works for every client, and its log lines are not the first one's.
            self._task = asyncio.create_task(self._run(), name="feed", context=Context())
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
                begun = {one.key: one.make() for one in joining if one.key not in watched}
                footings = _footings([*(each.topic for each in watched.values()), *begun.values()])
                glance = Glance(self._store.dialect, {slot: on for slot, on in footings.items() if on is not None})
                heavy = await self._counts_far([slot for slot, on in footings.items() if on is None])
                look = await self._store.read(
                    lambda: self._look(glance, watched, joining, begun),  # noqa: B023
                    heavy=heavy,
                )
            except Exception as error:
                if str(error) != self._failure:  # looks are many a second
                    log.warning("feed_failed", detail=str(error))
                self._failure = str(error)
                _refuse(joining, error)
            else:
                self._failure = ""
                events = self._tell(look)
                self._observer.streamed(rows=look.rows, events=events, seconds=self._monotonic() - started_s)
            self._beat()
            await self._sleep(self._limits.stream_poll_s)
        self._seen = None

    async def _counts_far(self, slots: Sequence[Slot]) -> bool:
        """Whether counts from the top may read many rows."""
        keys = {key for key, _ in slots}
        if unknown := sorted(keys - self._sizes.keys()):
            totals = await self._store.read(lambda: count_entries(self._store.dialect, unknown))
            self._sizes |= {key: totals[key].get(ALL_ENTRIES, 0) for key in unknown}
        self._sizes = {key: self._sizes[key] for key in keys}
        return any(size > self._limits.light_read_rows_max for size in self._sizes.values())

    def _look(
        self, glance: Glance, watched: dict[Hashable, _Watched], joining: list[_Joining], begun: dict[Hashable, Topic]
    ) -> Program[_Look]:
        for each in watched.values():
            each.topic.state = each.state  # a look that failed may have been on its way
        published = yield from self._journal.published()
        glance.until = published
        look = _Look(glance, published)
        seen = look.until if self._seen is None else self._seen
        begins_after = yield from self._journal.begins_after()
        rows: list[JournalRow] = []
        boards = {each.topic.board.key for each in watched.values()}
        if seen < begins_after:
            look.lost = True
        elif boards and seen < look.until:
            rows = yield from self._journal.page(seen, limit=self._limits.stream_rows_max, boards=sorted(boards))
            if len(rows) == self._limits.stream_rows_max:
                glance.until = rows[-1].number
        look.rows = len(rows)
        if rows:
            topics = [each.topic for each in watched.values()]
            glance.found(rows, ((topic.board.key, topic.owner) for topic in topics if topic.owner is not None))
        for each in watched.values():
            yield from _follow(look, each)
        if seen < look.published:
            yield from self._reached(look, watched)
        unread = set(begun)
        for one in joining:
            topic = begun.get(one.key) or watched[one.key].topic
            yield from self._join(look, one, topic, unread, begins_after)
        return look

    def _reached(self, look: _Look, watched: dict[Hashable, _Watched]) -> Program[None]:
        """End the streams of a family's boards that posts have reached: now they have a key that rows are found by."""
        waiting = [each for each in watched.values() if each.topic.board.is_unreached]
        if waiting:
            found = yield from boards_by_id(self._store.dialect, sorted({each.topic.board.id for each in waiting}))
            reached = {board.id for board in found}
            look.gone += [each for each in waiting if each.topic.board.id in reached]

    def _join(
        self, look: _Look, one: _Joining, topic: Topic, unread: set[Hashable], begins_after: int
    ) -> Program[None]:
        try:
            # The log doesn't tell of who is erased from an archive: a newcomer must not hear of them.
            if one.key in unread or topic.board.archived_us is not None:
                yield from topic.begin(look.glance)
                unread.discard(one.key)
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


def _footings(topics: Iterable[Topic]) -> dict[Slot, Footing | None]:
    """What counts start from, by the columns in which owners are followed. Before a look: a curve and its mark belong
    together."""
    found: dict[Slot, Footing | None] = {}
    for topic in topics:
        slot = topic.board.key, topic.index
        if topic.owner is not None and topic.board.archived_us is None and slot not in found:
            found[slot] = topic.footing()
    return found


def _follow(look: _Look, each: _Watched) -> Program[None]:
    try:
        if look.lost:
            yield from each.topic.begin(look.glance)
        elif look.glance.rows(each.topic.board):
            event = yield from each.topic.follow(look.glance)
            if event is not None:
                look.events.append((each, event))
    except (UnknownBoard, BoardChanged, UnknownOwner, NotRanked):
        look.gone.append(each)  # coming back, its clients are told what became of it


def _refuse(joining: Sequence[_Joining], error: Exception) -> None:
    refused = error if isinstance(error, StorageError) else StoreBusy("the journal could not be read")
    for one in joining:
        if not one.done.done():
            one.done.set_exception(refused)
