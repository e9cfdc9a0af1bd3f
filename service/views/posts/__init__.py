"""Handlers that take posts, show what became of them, void them, and judge those that are held for review.

    request ──parse──> posts ──resolve──> Post with stored numbers ────┬──> writer: applied, 200 with a result for each
                                     │                                 └──> mode=queued: ingest queue, 202 for all
                                     └──> a faulty post: it is `rejected`, or the queued request is refused

`posts` handles posts to leaderboards outside families, and `family_posts` handles posts to families. Both use `queue`
for `mode=queued`; it also shows the state of the ingest queue. `voiding` voids a post, `held` has the held posts, and
`journal` and `stream` read the journal.

In a direct request, a faulty post is rejected before the writer gets it, and the other posts are applied. The answer to
a queued request has no result for each post, so one faulty post makes the whole request fail. Begin with `posts`.
"""
