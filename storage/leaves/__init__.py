"""Leaves, where all entries are stored. A leaf is a table, or a key in a shared table, with its own totals and gate.

    board, family, segments (maps) ──> leaf ──┬── rows, rankings, hidden rows      `entries`, `row_rankings`, …
                                              ├── totals and the state of the leaf `totals`
                                              ├── the gate: open or shut           `gates`
                                              └── log, curves, archive             other rooms, by the leaf's key

Boards, families and segments, which are above this room, choose the leaves of a post or of a read. `posting` decides
what a post writes to them.

Ranks, curves and the journal are computed from the totals and the log. So a transaction that changes a row must also
update its leaf's totals and the change log; otherwise ranks would stay wrong forever.

An owner's row on a leaf is either in the leaf's table or in the hidden table. `hidden_owners` draws how a row moves.

Statements are compiled once for all leaves with the same table and columns, and get their parameters on each call.
`entries` and `row_rankings` cache them; `Entries` and `RowRanking` add the parameters of one leaf.

This room may import `log`, `schema` and the modules at the root of `storage`. Begin with `storage.records.Leaf`, then
read `entries.Entries` and `rankings.Ranking`, which `row_rankings` implements by reading rows. `row_tables` names the
tables, `catalog_rows` reads the catalog's description of leaves, and `exact_ranks` explains how a rank is counted from
a curve.
"""
