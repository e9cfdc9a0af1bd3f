"""Handlers of rankings. A ranking is the order of a leaderboard's owners by one ranked column.

`rankings` has pages, positions of values (added up over several leaderboards, if the request names some), values at
ranks, and the distribution. `around` has the rows around an owner or a value. `curves` has the document with which a
client calculates ranks offline, and a curve's refresh and audit. `erasures` erases many entries of a leaderboard.

Ranks come from `service.ranks`. A handler decides what is read in one snapshot, so that the ranks and totals in one
answer agree with each other even while posts arrive.
"""
