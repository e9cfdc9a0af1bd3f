"""Handlers of rankings. A ranking is the order of the owners of a leaderboard by one ranked column.

`rankings` has pages, positions of values (added up over several leaderboards, if the request names some), values of
ranks, and the distribution. `around` has the rows around an owner or a value. `curves` has the document with which a
client calculates ranks offline, and the refresh and the audit of a curve.

Ranks come from `service.ranks`. A handler decides what is read in one snapshot, so that the ranks and totals of one
answer agree with each other even while posts arrive.
"""
