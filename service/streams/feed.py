"""Reads the journal once for all streams of this process that follow boards in the same partitions.

If each stream read for itself, a thousand viewers of one board would mean a thousand times the same reads. Instead,
every poll reads the journal rows that the topics have not seen yet, and sends at most one event for each topic. A
client that reconnects, to any process, names the last event that it has seen, so it misses no change. A board is in one
partition, or in several if it has segments, and each partition numbers its own journal.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from operator import le, lt
from typing import Any

import structlog

from config.settings import Settings
from storage.boards import journal
from storage.boards.boards import find_boards_by_id
from storage.boards.journal import Numbers
from storage.errors import (
    BoardChangedError,
    NotRankedError,
    StorageError,
    StoreBusyError,
    UnknownBoardError,
    UnknownOwnerError,
)
from storage.leaves.exact_ranks import CountStart
from storage.leaves.totals import read_board_totals
from storage.log.partition_journal import JournalRow
from storage.meter import Meter
from storage.records import Board
from storage.store import Program, Store

from .subscriptions import CountStarts, Event, FeedSnapshot, OwnerTopic, RankedColumnId, Subscriber, Topic

log = structlog.get_logger(__name__)
RESET = b"{}"
_BEAT = b": alive\n\n"


@dataclass(slots=True, eq=False)
class _Joining:
    key: Hashable
    make: Callable[[], Topic]  # creates the topic; the feed calls it before the poll begins
    last_seen: Numbers | None
    client: Subscriber
    done: asyncio.Future[None]


@dataclass(slots=True)
class _PollResult:
    snapshot: FeedSnapshot
    begins_after: Numbers  # by partition: the number of the last pruned row, or 0; the journal still has all later rows
    lost: bool = False  # True if rows that the topics have not seen were pruned from the journal
    states: dict[Topic, Any] = field(default_factory=dict)  # the states that the poll has read or changed
    events: list[tuple[Topic, Event]] = field(default_factory=list)
    ended: list[Topic] = field(default_factory=list)  # topics whose streams end after this poll
    joined: list[tuple[_Joining, Topic | Exception, list[Event]]] = field(default_factory=list)


class Feeds:
    """The feeds of this process: one for all boards in the same partition or set of partitions."""

    def __init__(
        self,
        store: Store,
        limits: Settings,
        meter: Meter,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._store, self.limits, self.meter = store, limits, meter
        self.monotonic, self.sleep = monotonic, sleep
        self._by_partitions: dict[tuple[int, ...], Feed] = {}
        self.closed = False

    @property
    def clients(self) -> int:
        """Return the number of open streams, including those that wait for their first event."""
        return sum(feed.clients for feed in self._by_partitions.values())

    def find_feed(self, board: Board) -> "Feed":
        partitions = tuple(sorted({leaf.partition for leaf in board.leaves}))
        feed = self._by_partitions.get(partitions)
        if feed is None:
            feed = self._by_partitions[partitions] = Feed(self, self._store.at(partitions[0]), partitions)
        return feed

    def close(self) -> None:
        """End every stream. The clients can resume their streams at another process."""
        self.closed = True
        for feed in self._by_partitions.values():
            feed.close()


class Feed:
    def __init__(self, feeds: Feeds, store: Store, partitions: tuple[int, ...]) -> None:
        self.partitions = partitions
        self._feeds, self._store, self._limits, self._meter = feeds, store, feeds.limits, feeds.meter
        self._monotonic, self._sleep = feeds.monotonic, feeds.sleep
        self._topics: dict[Hashable, Topic] = {}
        self._joining: list[_Joining] = []
        self._seen: Numbers | None = None  # the topics have seen all rows up to these numbers; None: no topics
        self._task: asyncio.Task[None] | None = None
        self._failure = ""  # the error of the last poll; empty if it succeeded
        self._beaten_s = 0.0  # when the last heartbeat was sent to the clients, by the monotonic clock

    @property
    def clients(self) -> int:
        return len(self._joining) + sum(len(topic.clients) for topic in self._topics.values())

    async def join_topic(
        self, key: Hashable, make: Callable[[], Topic], client: Subscriber, *, last_seen: Numbers | None
    ) -> None:
        """Send a topic's events to a client from now on. Return when the client's first events have been sent.

        `key` names the topic, which the feed creates with `make` if no client follows it yet. `last_seen` has the
        journal numbers of the client's last event. It is None for a new client, and `NEVER_SEEN` if the id of that
        event is invalid.

        Raises:
            StoreBusyError: `stream_clients_max` streams are open, the service is shutting down, or the journal can't be
                read.
            StorageError: the topic's state can't be read; for example, the owner is hidden.
        """
        if self._feeds.closed or self._feeds.clients >= self._limits.stream_clients_max:
            raise StoreBusyError(f"{self._feeds.clients} streams are open, the limit set by stream_clients_max")
        done = asyncio.get_running_loop().create_future()
        self._joining.append(_Joining(key, make, last_seen, client, done))
        if self._task is None or self._task.done():
            # The task works for all clients. Without its own context, it would log the first client's request id.
            self._task = asyncio.create_task(self._run(), name="feed", context=Context())
        await done

    def leave_topic(self, key: Hashable, client: Subscriber) -> None:
        topic = self._topics.get(key)
        if topic is not None:
            topic.clients.discard(client)
            if not topic.clients:
                del self._topics[key]
        self._meter.set("rankcurve_streams_open", self._feeds.clients)

    def close(self) -> None:
        for topic in self._topics.values():
            for client in topic.clients:
                client.end_stream()
        for joining in self._joining:
            if not joining.done.done():
                joining.done.set_exception(StoreBusyError("the service is stopping"))
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._topics or self._joining:
            joining, self._joining = self._joining, []
            topics = dict(self._topics)
            try:
                for one in joining:
                    if one.key not in topics:
                        topics[one.key] = one.make()
                starts = _find_count_starts(topics.values())
                poll = await self._store.read(lambda: self._poll(starts, topics, joining))  # noqa: B023
            except Exception as error:
                if str(error) != self._failure:  # there may be many polls a second; log a repeated failure once
                    log.warning("feed_failed", detail=str(error))
                self._failure = str(error)
                refused = error if isinstance(error, StorageError) else StoreBusyError("the journal could not be read")
                for one in joining:
                    if not one.done.done():
                        one.done.set_exception(refused)
            else:
                self._failure = ""
                self._meter.add("rankcurve_stream_events", self._deliver(poll))
            self._beat()
            await self._sleep(self._limits.stream_poll_s)
        self._seen = None

    def _poll(
        self, starts: CountStarts, topics: dict[Hashable, Topic], joining: list[_Joining]
    ) -> Program[_PollResult]:
        watched = [each for each in topics.values() if each.state is not None]
        begins, ends = yield from journal.find_ends(self.partitions)
        snapshot = FeedSnapshot(starts, ends)
        seen = ends if self._seen is None else self._seen
        poll = _PollResult(snapshot, begins, lost=any(map(lt, seen, begins)))
        if watched and seen != ends and not poll.lost:
            found = yield from self._read_changes(seen, [each.board for each in watched])
            if len(found) == self._limits.stream_rows_max:
                snapshot.until = found[-1][0]
            owners = [each for each in watched if isinstance(each, OwnerTopic)]
            snapshot.add_rows([row for _, row in found], ((each.board.key, each.owner) for each in owners))
        for each in watched:
            yield from _follow(poll, each)
        if seen != ends:
            yield from self._reached(poll, watched)
        for one in joining:
            yield from self._join(poll, one, topics[one.key])
        return poll

    def _read_changes(self, after: Numbers, boards: Iterable[Board]) -> Program[list[tuple[Numbers, JournalRow]]]:
        limit, keys = self._limits.stream_rows_max, sorted({leaf.key for board in boards for leaf in board.leaves})
        page = yield from journal.read_page(after, limit=limit, partitions=self.partitions, boards=keys)
        return list(page.list_changes())

    def _reached(self, poll: _PollResult, watched: list[Topic]) -> Program[None]:
        """End the streams of family boards that have received their first post since the last poll.

        Journal rows name a board by its key, which a family board only gets with its first post. So a topic from before
        that post cannot recognise the board's rows. The clients reconnect, and follow the board by its new key.
        """
        waiting = [each for each in watched if each.board.is_unreached]
        if waiting:
            found = yield from find_boards_by_id(sorted({each.board.id for each in waiting}))
            reached = {board.id for board in found}
            poll.ended += [each for each in waiting if each.board.id in reached]

    def _join(self, poll: _PollResult, one: _Joining, topic: Topic) -> Program[None]:
        try:
            # The journal gets no row when an owner is erased from an archive. Therefore the state of an archived board
            # is read again for each new client.
            state = poll.states.get(topic, topic.state)
            if topic in poll.ended or (topic.board.is_unreached and (yield from find_boards_by_id([topic.board.id]))):
                raise BoardChangedError
            if state is not None:  # the topic, like this process's copy of the board, may be outdated
                yield from read_board_totals(topic.board)
            if state is None or topic.board.gate.archived_us is not None:
                state = poll.states[topic] = yield from topic.read_state(poll.snapshot)
            first = yield from self._first_events(poll, topic, state, one.last_seen)
            poll.joined.append((one, topic, first))
        except StorageError as error:
            poll.joined.append((one, error, []))

    def _first_events(
        self, poll: _PollResult, topic: Topic, state: Any, last_seen: Numbers | None
    ) -> Program[list[Event]]:
        until = poll.snapshot.until
        event = state.last._replace(numbers=until)
        if last_seen is None:
            return [] if state.is_empty and topic.waits_for_value else [event]
        rows = yield from self._find_missed_rows(poll, topic, last_seen)
        if rows is None:
            return [Event(until, "reset", RESET), event]
        missed = topic.find_missed_event(state, rows, until)
        if missed is None and state.is_empty and (yield from self._is_newer(topic.board, last_seen)):
            missed = event
        return [] if missed is None else [missed]

    def _find_missed_rows(
        self, poll: _PollResult, topic: Topic, last_seen: Numbers
    ) -> Program[list[JournalRow] | None]:
        ends = poll.snapshot.ends
        bounds = zip(poll.begins_after, last_seen, ends, strict=True)
        if poll.snapshot.until != ends or not all(begin <= number <= last for begin, number, last in bounds):
            return None
        found = yield from self._read_changes(last_seen, [topic.board])
        return None if len(found) == self._limits.stream_rows_max else [row for _, row in found]

    def _is_newer(self, board: Board, last_seen: Numbers) -> Program[bool]:
        """Return whether this board has no row that the client may have seen, only rows after its last event."""
        keys = [leaf.key for leaf in board.leaves]
        first = yield from journal.read_page((), limit=1, partitions=self.partitions, boards=keys)
        return not any(all(map(le, numbers, last_seen)) for numbers, _ in first.list_changes())

    def _deliver(self, poll: _PollResult) -> int:
        self._seen = poll.snapshot.until
        for followed, state in poll.states.items():
            followed.state = state
        sent = 0
        for followed, event in poll.events:
            sent += self._send([event], followed.clients)
        if poll.lost:
            for followed in self._topics.values():
                sent += self._send([Event(poll.snapshot.until, "reset", RESET), followed.state.last], followed.clients)
        self._topics = {key: each for key, each in self._topics.items() if each not in poll.ended}
        for followed in poll.ended:
            for client in followed.clients:
                client.end_stream()
        sent += sum(self._admit(*joined) for joined in poll.joined)
        self._meter.set("rankcurve_streams_open", self._feeds.clients)
        return sent

    def _admit(self, one: _Joining, topic: Topic | Exception, first: list[Event]) -> int:
        if one.done.done():  # the client left while it waited
            return 0
        if isinstance(topic, Exception):
            one.done.set_exception(topic)
            return 0
        self._topics.setdefault(one.key, topic).clients.add(one.client)
        one.done.set_result(None)
        return self._send(first, [one.client])

    def _beat(self) -> None:
        now_s = self._monotonic()
        if now_s - self._beaten_s < self._limits.stream_heartbeat_s:
            return
        self._beaten_s = now_s
        for client in [client for topic in self._topics.values() for client in topic.clients]:
            if not client.write(_BEAT):
                client.end_stream()

    def _send(self, events: Sequence[Event], clients: Iterable[Subscriber]) -> int:
        """Send the events to each client, and return the number of sent events.

        End the stream of a client that cannot keep up.
        """
        texts, sent = [event.encode_event(self.partitions) for event in events], 0
        for client in clients:
            if all(client.write(text) for text in texts):
                sent += len(texts)
            else:
                client.end_stream()
        return sent


def _find_count_starts(topics: Iterable[Topic]) -> CountStarts:
    """Find, for each column with followed owners, the curve at whose knots counts start; None: start at the top."""
    found: dict[RankedColumnId, CountStart | None] = {}
    for topic in topics:
        if isinstance(topic, OwnerTopic) and topic.board.gate.archived_us is None:
            slot = topic.board.key, topic.index
            found[slot] = found[slot] if slot in found else topic.find_count_start()
    return found


def _follow(poll: _PollResult, each: Topic) -> Program[None]:
    try:
        if poll.lost:
            poll.states[each] = yield from each.read_state(poll.snapshot)
        elif poll.snapshot.find_rows(each.board):
            state = poll.states[each] = yield from each.apply_new_rows(each.state, poll.snapshot)
            if state.last is not each.state.last:
                poll.events.append((each, state.last))
    except (UnknownBoardError, BoardChangedError, UnknownOwnerError, NotRankedError):
        poll.ended.append(each)  # clients connect again, and get an HTTP error if the topic still can't be read
