"""Background work: jobs that refresh curves, apply queued posts, balance pools and close boards.

    wiring ──> Runner: keeps every job running ──> a job: claim its lease, work in bounded steps, sleep, again
                                                        (Ownership)                           (JobControls)

Each job is a class with an endless method that `wiring.start_jobs` hands to the runner:

- `curves`: refresh and audit curves, keep them live, and load the curves that other processes stored.
- `queue`: apply posts that wait in the ingest queue.
- `leases`: liberate expired leases of pools and balance resources between regions.
- `boards`: close and archive boards, and delete rows past their retention.

With `ownership`, one process at a time does a piece of work. With `controls`, operators pause jobs. `request_origin`
passes the id and the trace of a request to a job. The rooms may import the modules beside them and `storage`,
but never `service`.

No read request ever starts a job or waits for one. Any number of job processes may run on one store, and any
of them may be killed at any time. A job works in bounded transactions, so the next owner of its lease can continue from
what the store holds.

Begin with `runner` and `ownership`, then read `boards.prune`, the plainest job.
"""
