"""Closes boards, replaces the rows of closed boards with a compressed archive, and reads that archive.

    open ── closes_at ──> shut ── final curves stored ──> frozen ── all blocks stored, rows removed ──> archived

A shut board rejects posts. If it has rewards, its grants are made before its curves (see `storage.rewards`). A frozen
board is archived once the time for which its rows are kept is over; if they are kept for ever, it stays frozen. The
jobs in `jobs.boards` run the steps, for each of which this package has a program. A board is shut together with all its
segments, and the segments share one archive.

Every step is stored in one short transaction, which first checks that the step has not been done yet. A job may
therefore be late, be killed at any point, or run twice without harm.

Once a board is archived, `ArchivedEntries` and `ArchivedRanking` take the place of `Entries` and `RowRanking`, so most
code need not know whether a board is archived. A read that needs the removed rows raises `ArchivedError`.

This package may import `rewards`, `segments`, `leaves`, `log`, `boards`, `schema`, the modules at the root of
`storage`, and `predictor` for the curves. It must not import `curves`. Read `board_closing` first, then `blocks`,
`archive_writer` and `archive_reader`.
"""
