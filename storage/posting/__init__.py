"""From posts to durable outcomes: admission, queueing, grouping into transactions, post ids, and replay of the journal.

    submit ──> RequestQueue (bounded) ──> group of requests ──> one transaction ──> outcomes ──> callers
       │                                     ^                        │
       │                                     └──── LostRaceError ─────┘
       └── QueueFullError, OverloadedError

Inside a transaction: lock and read the rows ──> look up post ids ──> find hidden rows ──> merge in memory, in order
──> write rows, post ids, log and totals. Nothing is written before everything is read.

This room may import `reads`, `entries`, `log`, `boards` and the rooms below them.

The most important rule: an outcome is final only when it is durable, and a post with an id takes effect once. Its id is
stored in the transaction of its effect, so sending the same post again settles an unknown outcome.

A reader begins with `writer.Writer.submit`, then `transaction.PostTransaction.apply_posts`, which applies the posts.
`waiting_posts` decides which requests share a transaction. `admission` estimates how long a post would wait, by which
the writer refuses posts, and how many transactions pay at once. `replay` merges the posts of the journal again.
"""
