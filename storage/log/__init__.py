"""The change log, which records what each post changed, and the rules by which posts merge into cells.

    post ── Merger ──> changed cells ── ChangeLog, in the transaction of the post ──> bundles in the log
                                                                                          │
         marks: live counts of curves, exact ranks <──────────────────────────────────────┤
         journal: numbered changes for callers, streams and rebuilds <── published ───────┤
         owner_index: Bloom filters, made later by a job, to find an owner's changes <────┘

The most important rule: a change gets its number before its transaction commits, so a reader may see a later number
before an earlier one. Therefore no reader simply continues after the last number that it saw. A reader either counts by
a `LogMark`, which covers exactly the changes in one snapshot, or reads the published numbers of the journal.

This room may import `boards`, `schema` and the modules at the root of `storage`. It never reads the rows of boards.
Begin with `cells` and `merging`, then `log_record`, `bundles` and `change_log`.
"""
