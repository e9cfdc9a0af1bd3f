"""Leagues: families with one kind of period, whose owners compete in cohorts of a division, and move between periods.

    first post of a period ──> a seat in an open cohort of the owner's division ──> the period ends, the board is shut
    ──> settle_cohorts: final ranks, new divisions (standings), and seats for those who have waited for the result

All rows of a period are in one leaf, the board of the period. A cohort is only a number beside the owners: it has no
board, no totals and no curve of its own, and is ranked in memory.

`standings` says in which division an owner begins a period. `seats` gives seats, in the transaction of the first post.
`settling` moves the owners of a shut board, step by step. `cohorts` ranks and reads.

A post may arrive while the previous period is being settled, and an owner that both overlook would never get a seat. So
a transaction that gives a seat holds the owner's standing, if there is one, and a transaction that settles changes it:
either the post lets the owner wait, or the settling finds the owner waiting. An owner waits for its own cohort alone.

Everybody locks in the same order: rows of the board, standings, open cohorts, and then whatever is written.
"""
