"""Handlers that take posts and show their outcomes.

    request ──parse──> posts ──resolve──> Post, in its boards' units ──┬──> writer: applied, 200 with a result for each
                                     │                                 └──> mode=queued: ingest queue, 202 for all
                                     └──> a faulty post: it is `rejected`, or the queued request is refused

`posts` handles leaderboards outside families, and `family_posts` handles families. Both use `queueing` for
`mode=queued`. `queue` shows the ingest queue and the outcome of one post. `journal` and `stream` read the log of
accepted posts.

A faulty post never reaches the writer, and only this post is rejected. A queued request has no result for each post.
Therefore a queued request with a faulty post is refused as a whole. Begin with `posts`.
"""
