"""The catalog of boards and families, the tables of their rows, seasons, API keys and profiles.

    outside a family    create_board ──> board ── change_board, reset_board ──> board ── delete_board ──> deleted
    in a family         put_family ── a first post: make_boards ──> board ── delete_family ──> deleted

This room creates, changes, finds and deletes boards, and says which table holds the rows of a board. It does not read
or write single entries: `storage.entries` does.

The most important rule: a process has only a copy of the catalog (`Catalog`, `FamilyCatalog`), which may be outdated.
The process reads the store before it reports that a board is unknown. If a program finds that its copy of a board is
outdated, it raises `BoardChangedError`, and the caller reads the board again.

This room may import `schema` and the modules at the root of `storage`, but not its neighbours `engines` and `leases`.
Begin with `boards`, which finds boards. `board_creation`, `board_changes`, `gates` and `board_removal` follow
the life of a board. Then read `row_tables` (where rows are), `families` and `family_ids`, then `catalog`. `totals`
counts entries, and tells whether a copy of a board is outdated. `shared_tables` is for stores that have many boards.
"""
