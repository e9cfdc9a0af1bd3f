"""Applies posts durably: admits, queues and groups them, runs the transactions, stores post ids, rebuilds boards.

    submit ──> RequestQueue (bounded) ──> group of requests ──> one transaction ──> outcomes ──> callers
       │                                     ^                        │
       │                                     └──── LostRaceError ─────┘
       └── QueueFullError, OverloadedError

A transaction has three parts: `group_facts` locks and reads, `decision` merges the posts in memory, in order, and
`transaction` writes the rows, post ids, the change log and totals. Most transactions need not look up post ids or
hidden owners, because the process remembers who is hidden and whether callers send ids again. `group_facts` says how it
notices that this is outdated. The reasons for which a board rejects a post form a single list, in `rules`.

A caller gets an outcome only when it is durable, and a post with an id takes effect only once, because the id is stored
in the transaction that applies the post. So a caller that does not know the outcome of a post sends the post again and
gets its outcome.

This package may import `reads`, `boards`, `leaves`, `log` and the packages below them. Begin with
`writer.Writer.submit`, then `transaction.apply_posts`. `waiting_posts` decides which requests share a transaction, and
estimates how long a post would wait. `remote_writer` is the writer of a front process; `post_server` takes its posts.
`rebuild` and `voiding` recompute entries from the journal.
"""
