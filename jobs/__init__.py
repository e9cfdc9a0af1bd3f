"""Background work: jobs that refresh curves, apply queued posts, balance pools and close boards.

    wiring ──> Runner: keeps every job running ──> a job: claim its lease, work in bounded steps, sleep, again
                                                        (Ownership)                           (JobControls)

Each job is a class with an endless method that `wiring.start_jobs` hands to the runner. The jobs are in the
sub-packages (rooms) `boards`, `curves`, `events` and `leases`, and in the module `queue`. Most of their bounds, such as
intervals, are settings.

No read request ever starts a job or waits for one. Any number of job processes may run on one store, and any of them
may be killed at any time: a job works in bounded transactions, so the next process that gets its lease can continue
from what the store holds.

The rooms may import the modules beside them and `storage`, but never `service`. Begin with `controls` and `ownership`,
then read `boards.prune`, the plainest job.
"""
