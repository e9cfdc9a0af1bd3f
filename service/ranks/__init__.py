"""Finding ranks on leaderboards: positions, pages of a ranking, a distribution.

    request ──> RankContext (a Locator for each board) ───> count: near the top, without a curve, or if there is room
                                                        └─> curve: everywhere else

Every rank is returned with its bracket `low … high` and with the method that found it. Ranking is expensive without a
curve: the lower an owner stands, the more entries must be counted.

A count may start from a knot of a curve and the curve's mark in the change log. The caller takes the curve and the mark
before its read begins. If they were newer than the snapshot of the read, the ranks would be wrong.

The room imports storage, predictor and `service.contract`. It does not use HTTP. `streams` and `views` use it.

Begin with `locator`. `pages` shows how the rows of a page get their ranks. `rank_context` has the object that other
rooms receive.
"""
