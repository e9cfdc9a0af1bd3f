"""Handlers that take posts and show what became of them.

    request ──parse──> posts ──resolve──> Post, in its boards' units ──┬──> writer: applied, 200 with a result each
                                     │                                 └──> mode=queued: ingest queue, 202 for all
                                     └──> a post that can't be taken: `rejected` alone, or refuses a queued request

`posts` serves leaderboards that stand alone, `family_posts` serves families, and `queueing` is what both share for
`mode=queued`. `queue` shows the ingest queue and the outcome of one post. `journal` and `stream` read the log of
accepted posts.

The most important rule: a fault of one post rejects that post only and never reaches the writer. In a queued request,
where a caller gets no result for each post, such a fault refuses the whole request. Begin with `posts`.
"""
