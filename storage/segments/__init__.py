"""A board whose entries are spread over segments by a hash of the owner, read as one board.

    post ──hash of the owner──> one segment                         read ──> all segments ──merged──> one answer

A segment is a leaf, in any partition. Posts, refreshes and the journal see leaves. Callers of the service see the
board, and the board is closed and archived as a whole. `Board.leaf_of` says which leaf has an owner.

`segmented_entries` reads the segments in one program: it adds up counts, and merges rows that the segments return in
order. `reads.point_reads` asks all segments at the same time, for many callers together.

The most important rule: what is read is what one board with all these rows would return. Only the snapshots differ:
each segment is read in one snapshot, and on a store that spans several servers these may be of different moments.
"""
