"""Limits on the values that posts may add to a column, and the posts held for an operator's verdict.

If game clients may post, their posts need limits. A limit that only rejects posts would lose an honest record. So a
post beyond a limit can also be held: it is stored, but changes nobody's entry until an operator has reviewed it.

`storage.posting.rules` judges each post. This room provides what the rules need: `gains` counts what an owner has added
in the last hour, and `held_posts` stores held posts. Boards without limits have no rows here, and posts to them cost
nothing extra. `storage.verdicts` applies or voids held posts.

This room may import `schema`.
"""
