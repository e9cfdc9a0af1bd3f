"""Jobs that apply the posts of the ingest queue.

    queued posts, in shards ──> DrainWorker: leases a permit and shards ──> rounds: posts applied in few transactions
                                                 ^
    SizeWorkersJob: work that was done ──> WorkerCount ──> how many workers may hold a permit (a stored semaphore)

- `drain` is one worker: it leases shards and applies their posts round by round.
- `size_workers` measures all workers of the store and decides how many may work.

A permit is one of a limited number of leases; a worker works only while it holds a permit. Each shard has at most one
worker, so the posts of a shard are applied in their order. If a worker dies, the others take over the shards when the
dead worker's leases end.

The room may import `storage` and the modules at the root of `jobs`. `storage.queue` holds the queue itself and applies
posts. Begin with `drain`.
"""
