"""The change log: what each post changed, and what is read from it. It also says how a post merges into stored cells.

    post ── Merger ──> changed cells ── ChangeLog.append, in the transaction of the post ──> bundles in the log
                                                                                                │
         marks: live counts of curves, exact ranks <────────────────────────────────────────────┤
         journal: numbered changes for callers, streams and rebuilds <── published ─────────────┤
         owner_index: Bloom filters, made later by a job, to find an owner's changes <──────────┘

The most important rule: a change gets its number before its transaction commits. So a reader may see a later number
before an earlier one, and "everything after the last number that I saw" misses changes. A reader either counts by a
`LogMark`, which is exactly what one snapshot saw, or reads the published numbers of the journal.

Ranked values are stored as cells: text that sorts as the values do. This room may import `boards`, `schema` and the
modules at the root of `storage`. It never reads the rows of boards.

Begin with `cells` and `merging`, then `log_record` and `bundles` (what one row of the log holds), then `change_log`.
"""
