"""Programs that close boards, replace the rows of closed boards by a compressed archive, and read that archive.

    open ── closes_at ──> shut ── final curves stored ──> frozen ── all blocks stored, rows removed ──> archived

A shut board rejects posts. If it has rewards, its grants are made before its curves (see `storage.rewards`). A frozen
board is archived when the time for which its rows are kept is over. If its rows are kept for ever, the board stays
frozen. The jobs in `jobs.boards` run the steps, and this package holds the program of each step. A board is shut
together with all its segments, and the segments have one archive in common.

Every step is stored in one short transaction, which first checks that the step was not done yet. So a job may be late,
be killed at any point, or run twice without harm.

Once a board is archived, `ArchivedEntries` and `ArchivedRanking` take the place of `Entries` and `RowRanking`, so most
code need not know whether a board is archived. A read that needs the removed rows raises `ArchivedError`.

This package may import `rewards`, `segments`, `leaves`, `log`, `boards`, `schema`, the modules at the root of
`storage`, and `predictor` for the curves. It must not import `curves`. Read `board_closing` first, then `blocks`,
`archive_writer` and `archive_reader`.
"""
