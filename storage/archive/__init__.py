"""Closed boards: closing them, replacing their rows by a compressed archive, and reading that archive.

    open ── closes_at ──> shut ── final curves stored ──> frozen ── all blocks stored, rows removed ──> archived

A shut board takes no posts. A board is archived once its rows need not be kept any longer. A board whose rows are kept
for ever stays frozen. The jobs in `jobs.boards` run the steps; this room holds the program of each step. A board with
segments is shut with all of them, and all segments have one archive.

The most important rule: every step is one short transaction, which first reads what is left to do. Therefore a job may
be late, be killed at any point, or run twice without harm.

Once a board is archived, `ArchivedEntries` and `ArchivedRanking` take the place of `Entries` and `RowRanking`. Most
readers treat all boards alike. A read that needs the removed rows raises `ArchivedError`.

This room may import `segments`, `entries`, `log`, `boards`, `schema`, the modules at the root of `storage`, and
`predictor` for the curves. It must not import the room `curves`. Begin with `board_closing`, then `blocks`,
`archive_writer` and `archive_reader`.
"""
