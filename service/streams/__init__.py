"""Streams of server-sent events, which follow the changes at the top of a ranking, or those of one owner's position.

    journal ──new rows of the watched boards──> Feed ──one event for each topic──> Topic's clients
                                                 │ FeedSnapshot: the data that all topics share in one poll
    client ──joins──> waits for the next poll ──first events──> follows its topic ──leaves, or is too slow──> dropped

In a process, all streams that follow boards in the same partitions share one reader of the journal, the feed. The feed
pauses for `stream_poll_s` seconds between two polls. Each poll reads a single snapshot, however many topics there are.

A topic is the top of a ranking or an owner's position. Its clients share one state, which is what they were last told.
The state is an immutable value, so if a poll fails, the topic keeps the state from before the poll. An event's id
consists of journal numbers, so a client can resume its stream at any process.

The package imports `ranks`, `service.contract` and storage. It does not import HTTP: `views/posts/stream` holds the
connections. `long_answers` has another purpose: it lets a process encode only one page of a journal at a time. Begin
with `subscriptions` (the two topics), then read `feed`.
"""
