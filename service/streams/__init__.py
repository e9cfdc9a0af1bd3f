"""Streams of server-sent events: the top of a ranking, or the position of one owner, as it changes.

    journal ──new rows of the watched boards──> Feed ──one event a topic──> Topic's clients
                                                 │ FeedSnapshot: what all topics share of one look
    client ──join──> waits for the next look ──first events──> watched ──leave, or too slow──> dropped

All streams of a process share one reader of the journal, the feed. It rests for `stream_poll_s` seconds between two
looks. Each look is one snapshot, whatever the number of topics. A topic holds one state that all its clients share.

The most important rule: a topic's state is one value that is replaced and never changed. A look that fails is undone by
putting the old value back. The number of an event is a number of the journal, so a client resumes at any process.

The room imports `ranks`, `service.contract` and storage. It does not import HTTP: `views/posts/stream` holds the
connections. `journal_lane` limits the long answers of journals instead; it shares only the journal with the rest.

Begin with `events` (the protocol of a topic), then `feed`, then `subscriptions` (the two topics).
"""
