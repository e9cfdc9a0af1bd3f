"""Rewards that owners get when a board closes. A grant is one reward for one owner, and a game claims it once.

    board is shut ── `begin_grants` ──> walk ── `read_steps`, `store_step` … ──> all grants are made, no walk is left

A walk goes through the ranking that each reward refers to, from the best row to the last one that gets the reward. Each
step is one short transaction, which stores the next grants together with the mark where the following step starts,
unless the board has changed since they were read. So each grant is made exactly once, even after a crash. The closing
job archives a board's rows only after its walk has ended.

`grant_walk` finds who gets which reward, including for a preview that stores nothing. `grant_making` runs the steps,
and `grants` reads, claims, moves and deletes grants. All of this is stored in the control partition, so grants outlive
the move, archiving or deletion of their board. They keep the name and the data that their reward had when the board
closed.

A transaction that deletes or moves an owner's grants first locks all walks. Otherwise a step that has already read the
owner's row could store a grant for the owner afterwards.

This room may import `boards`, `events`, `leaves`, `log` and `schema`.
"""
