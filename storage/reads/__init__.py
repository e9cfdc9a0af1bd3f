"""The point reads that nearly every request makes: one owner's entry, and the rows around an owner.

Many requests read the same board at the same time, so their reads are coalesced: one statement answers all requests for
the same board. Reading one owner on many boards also takes few statements: one for each table that the boards share.

`point_reads` holds both kinds of reads. `open_boards` keeps the compiled statements and the merge rules of the boards
in use, also for posting, refreshing and every other reader of rows. `partition_figures` reads what operators watch.

The most important rule: a result always belongs to the version of the board that the caller passed. If the board was
deleted, emptied or widened since then, the read raises `UnknownBoardError` or `BoardChangedError`. It never uses
statements that do not fit the stored rows.

This room may import `leaves`, `archive` and the rooms below them. Begin with `point_reads.PointReads`.
"""
