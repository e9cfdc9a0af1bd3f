"""Leagues: families with one kind of period, whose owners compete in cohorts and change division between periods.

    first post of a period ──> a seat in an open cohort of the owner's division ──> the period ends, the board is shut
    ──> settle_cohorts: final ranks, new divisions (standings), and seats for those who have waited for the result

All rows of a period are in one leaf, the period's board. A cohort is only a number stored with its owners: it has no
board, totals or curve of its own, and is ranked in memory.

`standings` finds the division in which an owner begins a period. `seats` assigns seats, in the transaction of the
owner's first post. `settling` moves the owners of a shut board, step by step. `cohorts` ranks and reads cohorts.

A post may arrive while the previous period is being settled, and an owner overlooked by both transactions would never
get a seat. So a transaction that assigns a seat locks the owner's standing, if there is one, and a transaction that
settles changes it. Therefore either the post sees the owner's result, or the settling finds the owner waiting. An owner
only waits for its own cohort.

All transactions lock in the same order: rows of the board, standings, open cohorts, and then whatever they write.
"""
