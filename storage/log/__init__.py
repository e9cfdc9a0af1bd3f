"""The change log, which records what each post changed, and the rules by which posts merge into cells.

    post ── Merger ──> changed cells ── ChangeLog, in the transaction of the post ──> bundles in the log
                                                                                          │
         after a log position: live counts of curves, exact ranks <───────────────────────┤
         partition_journal: numbered changes for the journal, streams and rebuilds <──────┤
         owner_index: Bloom filters, made later by a job, to find an owner's changes <────┘

A transaction logs its changes at its end, and holds the log's counter until it commits. So changes are numbered in the
order of the commits, and a reader that continues after the last number it saw misses nothing.

This room may import `schema` and the modules at the root of `storage`. It never reads boards' rows. Begin with
`cells` and `merging`, then `bundles` and `change_log`.
"""
