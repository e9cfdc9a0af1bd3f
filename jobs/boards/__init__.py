"""Jobs that close boards whose time is over, archive or move whole boards, and delete rows past their retention.

    open ── its end passes ──> shut: rejects posts ──> frozen: final curves fitted ──> archived: rows compressed
                               (many at a time)         (one at a time)                 (in bounded steps)

- `close_periods` takes each board through these stages.
- `move` moves a board to another partition, or splits it into segments. It runs when an operator's command asks for it.
- `prune` deletes old post ids, logged changes and rejected posts, and the rows of deleted or emptied boards.

Requests have priority, so jobs work in bounded transactions with pauses between them. The stages are stored, so that
any process can continue where another one stopped.

The room may import `jobs.curves`, `storage` and the modules at the root of `jobs`. Begin with `close_periods`.
"""
