"""From posts to durable outcomes: admission, queueing, grouping into transactions, post ids, rebuilds from the journal.

    submit ──> RequestQueue (bounded) ──> group of requests ──> one transaction ──> outcomes ──> callers
       │                                     ^                        │
       │                                     └──── LostRaceError ─────┘
       └── QueueFullError, OverloadedError

A transaction locks and reads the rows and merges the posts in memory, in order. Only then does it write: the rows, post
ids, the change log and totals. It looks up post ids and hidden rows only if what the process knows is not enough:
`known_facts` explains what that is, and how a transaction notices that it has changed.

The most important rule: an outcome is final only when it is durable, and a post with an id takes effect once. The id is
stored in the transaction that applies the post. So a caller that does not know the outcome of a post sends the post
again and gets its outcome.

This room may import `reads`, `boards`, `leaves`, `log` and the rooms below them. Begin with `writer.Writer.submit`,
then `transaction.PostTransaction.apply_posts`. `waiting_posts` decides which requests share a transaction. `admission`
estimates how long a post would wait. `rebuild` merges the posts of the journal again.
"""
