"""Makes a board whose entries are spread over segments, by a hash of the owner, readable as one board.

    post ──hash of the owner──> one segment                         read ──> all segments ──merged──> one answer

Each segment is a leaf, in any partition. Posts, refreshes and the journal work on leaves, while callers of the service
see only the board, which is closed and archived as a whole. `Board.leaf_of` returns the leaf that holds an owner's
entry.

`segmented_entries` adds up the segments' counts, and merges the rows that each segment returns in order. It does so
either within one program or, for many callers together (`reads.point_reads`), by asking all segments at the same time.

A read returns the same as a read of one leaf that held the rows of all segments, so no caller needs to know about
segments. Only the snapshots differ: each segment is read in its own, and on several servers these may show different
moments.
"""
