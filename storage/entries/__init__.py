"""The rows of a board: reads, conditional writes, rankings, exact ranks, hidden owners, erasure.

This room may import `log`, `boards`, `schema` and the rooms below them. `posting` decides what a post writes; this room
offers the programs for it.

The most important rule: a transaction that changes a row also changes the totals of its board and the change log.
Ranks, curves and the journal are computed from these.

An owner's row on a board is either in the board's table or in the hidden table. `hidden_owners` draws how it moves.

Statements are compiled once for all boards with the same table and columns, and bound on each call. The classes named
`…Statements` hold them; `Entries` and `RowRanking` bind them to one board.

Begin with `entries.Entries`, then `rankings.Ranking`, which `row_rankings` implements by reading rows. `exact_ranks`
explains how a rank is counted from a curve.
"""
