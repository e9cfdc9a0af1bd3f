"""The point reads that nearly every request makes: one owner's entry, and the rows around an owner.

Many requests read the same board at the same time, so their reads are coalesced: one statement answers all requests for
the same board. Reading one owner on many boards takes few statements, for example one for all boards in the same table.

`point_reads` holds both kinds of reads. `open_boards` keeps the compiled statements and the merge rules of the boards
in use, which posting, refreshing and all other readers of rows use as well. `away_partitions` finds the partitions that
do not respond.

A result always belongs to the version of the board that the caller passed. If, after the caller found the board, it was
deleted, emptied or archived, or got a new column, the read raises `UnknownBoardError` or `BoardChangedError` instead of
using statements that do not fit the stored rows.

This package may import `leaves`, `archive` and the packages below these two. Begin with `point_reads.PointReads`.
"""
