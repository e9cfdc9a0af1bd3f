"""Jobs for whole boards: they close boards whose time is over, archive them, and delete rows past their retention.

    open ── its end passes ──> shut: rejects posts ──> frozen: final curves fitted ──> archived: rows compressed
                               (many at a time)         (one at a time)                 (in bounded steps)

- `close_periods` takes each board through these stages.
- `move` moves a board to another partition, or splits it into segments. A command of an operator runs `move`.
- `prune` deletes old post ids, logged changes and rejected posts, and the rows of deleted or emptied boards.

Requests have priority: jobs work in bounded transactions with pauses between them. The stages are stored, so any
process can continue where another one stopped.

The room may import `jobs.curves`, `storage` and the modules at the root of `jobs`. Begin with `close_periods`.
"""
