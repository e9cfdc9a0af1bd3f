"""Finds ranks on leaderboards: the positions of owners and values, pages of a ranking, and how a column is distributed.

    request ──> RankContext (a Locator for each board) ───> count: near the top, without a curve, or if requests are few
                                                        └─> curve: everywhere else

Every rank is returned with its bracket `low … high` and with the method that found it. Without a curve, ranking is
expensive, because the lower an owner stands, the more entries must be counted.

A count may start at a knot of a curve. It then adds the changes after the curve's mark, a position in the change log.
The caller must fetch the curve and its mark before it begins to read: if they were newer than the snapshot of the read,
ranks would be wrong.

This package imports storage, predictor and `service.contract`, and does not use HTTP. `streams`, `views` and `resp` use
it. Begin with `locator`. `pages` shows how the rows of a page get their ranks, and `rank_context` has the object that
other packages receive.
"""
