"""Maps a name, a time and an owner to leaves, through boards, families with their periods, and seasons.

    outside a family    create_board ──> board ── change_board, reset_board ──> board ── delete_board ──> deleted
    in a family         put_family ── a first post: make_boards ──> board ── reset_period ──> board
                        ── delete_family ──> deleted

A leaf is the only thing that stores entries. To find one, a name leads to a board or a family, a time and facets lead
to the family's boards, and an owner leads to one segment of a board. The programs here create, change, move and delete
boards; `storage.leaves` handles entries.

Each process works with a copy of the catalog (`Catalog`, `FamilyCatalog`). Because that copy may be outdated, the
process reads the store before it reports that a board is unknown. If a program finds that its copy of a board is
outdated, it raises `BoardChangedError`, and the caller reads the board again.

This package may import `curves`, `leaves`, `leases` and the packages below. Read `boards` first, which finds boards.
`board_creation`, `board_changes`, `board_copy` (moves and splits) and `board_removal` follow the life of a board. Then
read `families` and `family_ids`, then `catalog`. `shared_tables` is for stores that have many boards. `journal` merges
the change logs of all partitions. `api_keys` and `profiles` are independent of all these.
"""
