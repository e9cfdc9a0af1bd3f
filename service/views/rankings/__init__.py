"""Handlers of one ranking, that is of one ranked column of a leaderboard.

`rankings` has pages, positions of values, values of ranks, the distribution, the curve and its refresh. `around` has
the rows around an owner or a value. `several_boards` adds up positions on several leaderboards. `curve_documents` makes
the document with which a client ranks offline.

Ranks come from `service.ranks`. A handler decides what is read in one snapshot, so that the ranks and totals of one
answer agree with each other even while posts arrive.
"""
