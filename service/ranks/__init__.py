"""Finding ranks on one leaderboard: positions, pages of a ranking, the next better entry, a distribution.

    request ──> LocatorCache (a Locator for each board) ──> curve: where its bracket is good enough
                                                        └─> count: near the top, in a short gap, or without a curve

Every rank is returned with its bracket `low … high` and with the method that found it. Ranking is expensive without a
curve: the lower an owner stands, the more entries must be counted.

A count starts from a knot of a curve and from a mark in the change log. The caller takes the curve and the mark before
its read begins, because a start that is newer than the read's snapshot would give wrong ranks.

The room imports storage, predictor and `service.contract`. It knows nothing of HTTP; `streams` and `views` use it.

Begin with `locator`; `pages` shows how its ranks become rows. `rank_context` has the object that other rooms receive.
"""
