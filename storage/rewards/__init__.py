"""Rewards: what owners get when a board closes. A grant is one reward of one owner, and a game claims it once.

    board is shut ── `begin_grants` ──> walk ── `read_steps`, `store_step` … ──> all grants are made, no walk is left

A walk goes through the ranking of each reward, from the best row to the last one that gets the reward. Each step is one
short transaction, which stores the next grants together with the mark where the following step begins, unless the board
has changed since they were read. So each grant is made exactly once, whatever crashes. The closing job archives the
rows of a board only after its walk has ended.

`grant_walk` says who gets which reward, also for a preview that stores nothing. `grant_making` has the steps, and
`grants` reads, claims, moves and deletes grants. All of it is in the control partition, so grants stay when their board
moves, is archived or is deleted. They keep the name and the data that their reward had when the board closed.

Whoever deletes or moves the grants of an owner first locks all walks. Otherwise a step that has read the owner's row
before could store a grant of the owner afterwards.

This room may import `boards`, `events`, `leaves`, `log` and `schema`.
"""
