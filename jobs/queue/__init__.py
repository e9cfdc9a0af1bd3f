"""Jobs that apply the posts of the ingest queue.

    queued posts, in shards ──> DrainWorker: leases a permit and shards ──> rounds: posts applied in few transactions
                                                 ^
    SizeWorkersJob: work that was done ──> WorkerCount ──> how many workers may hold a permit (a stored semaphore)

- `drain` is one worker: it leases shards and applies their posts round by round.
- `size_workers` measures all workers of the store and decides how many may work.

A permit is one of a limited number of leases; a worker works only while it holds a permit. A shard is a part of the
queue. It has at most one worker, so its posts are applied in their order. If a worker dies, the others take over its
shards when its leases end.

The room may import `storage` and the modules at the root of `jobs`. `storage.queue` holds the queue itself and applies
posts. Begin with `drain`.
"""
