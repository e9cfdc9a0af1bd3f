"""Closed boards: closing them, replacing their rows by a compressed archive, and reading that archive.

    open ── closes_at ──> shut ── final curves stored ──> frozen ── all blocks stored, rows removed ──> archived

A shut board takes no posts. A board is archived once its rows need not be kept any longer. A board whose rows are kept
for ever stays frozen. `jobs.boards` takes the steps; this room says what each step does.

The most important rule: every step is one short transaction that finds out for itself what is left to do. So a job may
be late, be killed anywhere, or run twice. An archive shows one state of its board: if an owner is erased while it is
written, it is begun anew.

Once a board is archived, `ArchivedEntries` and `ArchivedRanking` take the place of `Entries` and `Ranking`, so readers
need not know. What only rows could tell raises `ArchivedError`.

This room may import `entries`, `log`, `boards`, `schema`, the modules at the root of `storage`, and `predictor` for the
curves. It must not import `curves` beside it. Begin with `board_closing`, then `blocks` (what an archive consists of),
`archive_writer` and `archive_reader`.
"""
