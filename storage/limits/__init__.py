"""Limits of what posts bring to a column, and the posts that are held for an operator's verdict.

Whoever lets games' clients post needs limits. A limit that only rejects would lose an honest record, so a post beyond a
limit can also be held: stored, but nobody's entry has it until an operator has looked at it.

`storage.posting.rules` judges each post. This room has what it needs for that: `gains` counts what an owner has added
in the last hour, and `held_posts` stores held posts. Boards without limits have no rows here, and their posts cost
nothing more. `storage.verdicts` applies or voids held posts.

This room may import `schema`.
"""
