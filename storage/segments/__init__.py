"""A board whose entries are spread over segments by a hash of the owner, read as one board.

    post ──hash of the owner──> one segment                         read ──> all segments ──merged──> one answer

A segment is a leaf, in any partition. Posts, refreshes and the journal work on leaves. Callers of the service see only
the board, and it is closed and archived as a whole. `Board.leaf_of` returns the leaf that holds an owner's entry.

`segmented_entries` adds up counts, and merges rows that the segments return in order: within one program, or for many
callers together (`reads.point_reads`) by asking all segments at the same time.

A read returns the same as a read of one leaf with the rows of all segments, so no caller needs to know of segments.
Only the snapshots differ: each segment is read in one snapshot, and on several servers these may be of different
moments.
"""
