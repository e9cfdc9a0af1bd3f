"""The feed: one reader of the journal for all streams of this process.

Every poll reads the rows of the journal that the topics have not seen yet, and sends at most one event for each topic.
A client that connects again, to any process, names the last event that it has seen. So the client misses no change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from config.settings import Settings
from storage.boards.boards import ALL_ENTRIES, find_boards_by_id, find_totals
from storage.entries.exact_ranks import CountStart
from storage.errors import (
    BoardChangedError,
    NotRankedError,
    StorageError,
    StoreBusyError,
    UnknownBoardError,
    UnknownOwnerError,
)
from storage.log.journal import JournalRow, journal
from storage.store import Program, Store

from .events import Event, State, Topic
from .snapshot import FeedSnapshot, RankedColumnId

log = structlog.get_logger(__name__)
RESET = b"{}"


class Subscriber(Protocol):
    """A connection that receives events."""

    def send_event(self, event: Event) -> bool:
        """Send an event; return False if the client has left, or was dropped because it reads too slowly."""

    def send_heartbeat(self) -> bool:
        """Send a heartbeat; return False in the same cases as `send_event`."""

    def end_stream(self) -> None:
        """End the stream."""


class FeedObserver(Protocol):
    """Receives the numbers that the feed measures."""

    def streams(self, clients: int) -> None:
        """Record the number of clients, after the number has changed."""

    def streamed(self, *, rows: int, events: int, seconds: float) -> None:
        """Record a finished poll: how many rows it read, how many events it sent to clients, and how long it took."""


@dataclass(slots=True, eq=False)
class _Joining:
    key: Hashable
    make: Callable[[], Topic]  # makes the topic; the feed calls it before the poll begins
    last_seen: int | None
    client: Subscriber
    done: asyncio.Future[None]


@dataclass(slots=True, eq=False)
class _Watched:
    topic: Topic
    state: State  # the topic's state after the last poll that succeeded
    clients: set[Subscriber] = field(default_factory=set)


@dataclass(slots=True)
class _PollResult:
    snapshot: FeedSnapshot
    published: int
    rows: int = 0
    lost: bool = False  # True if rows that the topics have not seen were pruned from the journal
    events: list[tuple[_Watched, Event]] = field(default_factory=list)
    ended: list[_Watched] = field(default_factory=list)  # topics whose streams end after this poll
    joined: list[tuple[_Joining, Topic | Exception, list[Event]]] = field(default_factory=list)

    @property
    def until(self) -> int:
        """Return the last sequence number of the journal that the topics have seen after this poll."""
        return self.snapshot.until


class Feed:
    def __init__(
        self,
        store: Store,
        limits: Settings,
        observer: FeedObserver,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._store, self._limits, self._observer = store, limits, observer
        self._monotonic, self._sleep = monotonic, sleep
        self._topics: dict[Hashable, _Watched] = {}
        self._joining: list[_Joining] = []
        self._seen: int | None = None  # all topics have seen every row of the journal up to this number
        self._sizes: dict[int, int] = {}  # entries by board key, only for boards on which counts start from the top
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._failure = ""  # the error of the last poll; empty if it succeeded
        self._beaten_s = 0.0

    @property
    def clients(self) -> int:
        """The number of open streams, including those that wait for their first event."""
        return len(self._joining) + sum(len(watched.clients) for watched in self._topics.values())

    async def join_topic(
        self, key: Hashable, make: Callable[[], Topic], client: Subscriber, *, last_seen: int | None
    ) -> None:
        """Send a topic's events to a client from now on. Return when the client's first events have been sent.

        The feed calls `make` only if no client follows the topic of `key` yet. `last_seen` is the number of the last
        event that the client has seen; None for a new client; -1 if the client named a number that no journal has.

        Raises:
            StoreBusyError: `stream_clients_max` streams are open.
            StorageError: the topic's state can't be read; for example, there is no such owner.
        """
        if self._closed or self.clients >= self._limits.stream_clients_max:
            raise StoreBusyError(f"{self.clients} streams are open, as many as stream_clients_max allows")
        done = asyncio.get_running_loop().create_future()
        self._joining.append(_Joining(key, make, last_seen, client, done))
        if self._task is None or self._task.done():
            # Without a context of its own, the task of all clients would log the request id of the first client.
            self._task = asyncio.create_task(self._run(), name="feed", context=Context())
        await done

    def leave_topic(self, key: Hashable, client: Subscriber) -> None:
        watched = self._topics.get(key)
        if watched is not None:
            watched.clients.discard(client)
            if not watched.clients:
                del self._topics[key]
        self._observer.streams(self.clients)

    def close(self) -> None:
        """End every stream. The clients can resume their streams at another process."""
        self._closed = True
        for watched in self._topics.values():
            for client in watched.clients:
                client.end_stream()
        for joining in self._joining:
            if not joining.done.done():
                joining.done.set_exception(StoreBusyError("the service is stopping"))
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._topics or self._joining:
            started_s = self._monotonic()
            joining, self._joining = self._joining, []
            watched = dict(self._topics)
            try:
                begun = {one.key: one.make() for one in joining if one.key not in watched}
                starts = _find_count_starts([*(each.topic for each in watched.values()), *begun.values()])
                known = {slot: start for slot, start in starts.items() if start is not None}
                snapshot = FeedSnapshot(known)
                heavy = await self._counts_far([slot for slot, start in starts.items() if start is None])
                poll = await self._store.read(
                    lambda: self._poll(snapshot, watched, joining, begun),  # noqa: B023
                    heavy=heavy,
                )
            except Exception as error:
                if str(error) != self._failure:  # there may be many polls a second; log a repeated failure once
                    log.warning("feed_failed", detail=str(error))
                self._failure = str(error)
                _refuse(joining, error)
            else:
                self._failure = ""
                events = self._deliver(poll)
                self._observer.streamed(rows=poll.rows, events=events, seconds=self._monotonic() - started_s)
            self._beat()
            await self._sleep(self._limits.stream_poll_s)
        self._seen = None

    async def _counts_far(self, slots: Sequence[RankedColumnId]) -> bool:
        """Return whether counts from the top of these columns may read more than `light_read_rows_max` rows."""
        keys = {key for key, _ in slots}
        if unknown := sorted(keys - self._sizes.keys()):
            totals = await self._store.read(lambda: find_totals(unknown))
            self._sizes |= {key: totals[key].get(ALL_ENTRIES, 0) for key in unknown}
        self._sizes = {key: self._sizes[key] for key in keys}
        return any(size > self._limits.light_read_rows_max for size in self._sizes.values())

    def _poll(
        self,
        snapshot: FeedSnapshot,
        watched: dict[Hashable, _Watched],
        joining: list[_Joining],
        begun: dict[Hashable, Topic],
    ) -> Program[_PollResult]:
        for each in watched.values():
            each.topic.state = each.state  # undo what a failed poll may have changed
        published = yield from journal.find_last_published()
        snapshot.until = published
        poll = _PollResult(snapshot, published)
        seen = poll.until if self._seen is None else self._seen
        begins_after = yield from journal.find_begin()
        rows: list[JournalRow] = []
        boards = {each.topic.board.key for each in watched.values()}
        if seen < begins_after:
            poll.lost = True
        elif boards and seen < poll.until:
            rows = yield from journal.read_changes(seen, limit=self._limits.stream_rows_max, boards=sorted(boards))
            if len(rows) == self._limits.stream_rows_max:
                snapshot.until = rows[-1].number
        poll.rows = len(rows)
        if rows:
            topics = [each.topic for each in watched.values()]
            snapshot.add_rows(rows, ((topic.board.key, topic.owner) for topic in topics if topic.owner is not None))
        for each in watched.values():
            yield from _follow(poll, each)
        if seen < poll.published:
            yield from self._reached(poll, watched)
        unread = set(begun)
        for one in joining:
            topic = begun.get(one.key) or watched[one.key].topic
            yield from self._join(poll, one, topic, unread, begins_after)
        return poll

    def _reached(self, poll: _PollResult, watched: dict[Hashable, _Watched]) -> Program[None]:
        """End the streams of family boards that have received their first post since the last poll.

        Such a board has its own board key only since that post, and the journal's rows name the board by this key. The
        clients connect again and follow the board by its own key.
        """
        waiting = [each for each in watched.values() if each.topic.board.is_unreached]
        if waiting:
            found = yield from find_boards_by_id(sorted({each.topic.board.id for each in waiting}))
            reached = {board.id for board in found}
            poll.ended += [each for each in waiting if each.topic.board.id in reached]

    def _join(
        self, poll: _PollResult, one: _Joining, topic: Topic, unread: set[Hashable], begins_after: int
    ) -> Program[None]:
        try:
            # The journal gets no row when an owner is erased from an archive. Therefore the state of an archived board
            # is read again for each new client.
            if one.key in unread or topic.board.archived_us is not None:
                yield from topic.read_state(poll.snapshot)
                unread.discard(one.key)
            first = yield from self._first_events(poll, topic, one.last_seen, begins_after)
        except StorageError as error:
            poll.joined.append((one, error, []))
            return
        poll.joined.append((one, topic, first))

    def _first_events(
        self, poll: _PollResult, topic: Topic, last_seen: int | None, begins_after: int
    ) -> Program[list[Event]]:
        last = topic.state.last
        assert last is not None
        state = last._replace(number=poll.until)
        if last_seen is None:
            return [state]
        limit = self._limits.stream_rows_max
        rows: list[JournalRow] | None = None
        if begins_after <= last_seen <= poll.published:
            rows = yield from journal.read_changes(last_seen, limit=limit, boards=[topic.board.key])
        if rows is None or len(rows) == limit:
            return [Event(poll.until, "reset", RESET), state]
        missed = topic.find_missed_event([row for row in rows if row.number <= poll.until], poll.until)
        return [] if missed is None else [missed]

    def _deliver(self, poll: _PollResult) -> int:
        self._seen = poll.until
        sent = 0
        for watched in self._topics.values():
            watched.state = watched.topic.state
        for watched, event in poll.events:
            sent += self._send(watched, [event])
        if poll.lost:
            for watched in self._topics.values():
                last = watched.topic.state.last
                assert last is not None
                sent += self._send(watched, [Event(poll.until, "reset", RESET), last])
        for watched in poll.ended:
            for client in watched.clients:
                client.end_stream()
        for one, topic, first in poll.joined:
            if one.done.done():  # the client left while it waited
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

    def _send(self, watched: _Watched, events: Sequence[Event], clients: Sequence[Subscriber] | None = None) -> int:
        sent = 0
        for client in list(watched.clients) if clients is None else clients:
            if all(client.send_event(event) for event in events):
                sent += len(events)
            else:
                client.end_stream()
        return sent

    def _beat(self) -> None:
        now_s = self._monotonic()
        if now_s - self._beaten_s < self._limits.stream_heartbeat_s:
            return
        self._beaten_s = now_s
        for watched in self._topics.values():
            for client in watched.clients:
                if not client.send_heartbeat():
                    client.end_stream()


def _find_count_starts(topics: Iterable[Topic]) -> dict[RankedColumnId, CountStart | None]:
    """Return the start of a count for each column in which clients follow an owner. Call this before a poll."""
    found: dict[RankedColumnId, CountStart | None] = {}
    for topic in topics:
        slot = topic.board.key, topic.index
        if topic.owner is not None and topic.board.archived_us is None and slot not in found:
            found[slot] = topic.find_count_start()
    return found


def _follow(poll: _PollResult, each: _Watched) -> Program[None]:
    try:
        if poll.lost:
            yield from each.topic.read_state(poll.snapshot)
        elif poll.snapshot.find_rows(each.topic.board):
            event = yield from each.topic.apply_new_rows(poll.snapshot)
            if event is not None:
                poll.events.append((each, event))
    except (UnknownBoardError, BoardChangedError, UnknownOwnerError, NotRankedError):
        poll.ended.append(each)  # the clients connect again and then receive the error


def _refuse(joining: Sequence[_Joining], error: Exception) -> None:
    refused = error if isinstance(error, StorageError) else StoreBusyError("the journal could not be read")
    for one in joining:
        if not one.done.done():
            one.done.set_exception(refused)
