"""The point reads that nearly every request makes: one owner's entry, and the rows around an owner.

Many requests read the same board at the same time, so their reads are coalesced: one statement answers all requests for
the same board. A read of one owner on many boards takes few statements, such as one for all boards in the same table.

`point_reads` holds both kinds of reads. `open_boards` keeps the compiled statements and the merge rules of the boards
in use, also for posting, refreshing and all other readers of rows. `away_partitions` asks which partitions answer.

A result always belongs to the version of the board that the caller passed. If the board was deleted, emptied or
archived, or got a new column, after the caller found it, the read raises `UnknownBoardError` or `BoardChangedError`. It
never uses statements that do not fit the stored rows.

This package may import `leaves`, `archive` and the packages below these two. Begin with `point_reads.PointReads`.
"""
