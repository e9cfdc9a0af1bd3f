"""The ingest queue, which makes posts with `mode=queued` durable when they arrive, and applies them later.

    intake ── the queue is too deep, or its oldest post is too old ──> refused
       │ one transaction: the posts are durable, and the sender gets the answer "accepted"
       v
    waiting: in a block of posts of one shard of one partition (ingest_queue, post_blocks)
       │ a worker with the shard's lease and one of a limited number of permits (workers)
       v
    one transaction (queue_application): keep the leases, take the blocks, apply the posts, remember what was rejected
       ├──> applied
       └──> rejected: the reason is stored, because the sender already has the answer "accepted" (outcomes)

A block leaves the queue only in the transaction that applies its posts. So even after a crash, no post is lost or
applied twice. An owner's posts to the boards of one partition keep their order, because all of them are in one shard,
and a shard has one worker at a time.

Every partition has its own queue, with its own shards, leases, counts and rejections, so that the transaction that
applies posts stays within their partition. Only posts to boards of several partitions wait in the control partition.

This is the uppermost room of `storage`: it may import every other room, and none imports it. The workers' loops, and
the choice of how many workers there should be, are in `jobs/queue`. Begin with `ingest_queue`, then `intake` and
`queue_application`.
"""
