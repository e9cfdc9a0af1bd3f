"""Finds ranks on leaderboards: the positions of owners and values, pages of a ranking, the distribution of a column.

    request ──> RankContext (a Locator for each board) ───> count: near the top, without a curve, or if requests are few
                                                        └─> curve: everywhere else

Every rank is returned with its bracket `low … high` and with the method that found it. Ranking is expensive without a
curve: the lower an owner stands, the more entries must be counted.

A count may start at a knot of a curve. It then adds the changes after the curve's mark, a position in the change log.
The caller fetches curve and mark before it begins to read. If they were newer than the snapshot of the read, ranks
would be wrong.

This package imports storage, predictor and `service.contract`. It does not use HTTP. `streams` and `views` use it.
Begin with `locator`. `pages` shows how the rows of a page get their ranks. `rank_context` has the object that other
packages receive.
"""
