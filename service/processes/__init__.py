"""The processes of one node: the supervisor of `rankcurve serve --workers N`, its workers, and a process for jobs.

    supervisor ──orders (a pipe to standard input)──> worker1 … workerN   serve: front ends on one shared port
               <──report (standard output)──────────  jobs1               jobs: refreshes, folds, audits, …

    place ──> starting ──ready──> running ──crash──> pause ──> starting …
                 │ refused or crashed at its first start: the whole node stops, exit code 1

A place (`ProcessSlot`) has one process at a time. If this process crashes, another process is started in its place.

The most important rule: no part of the service runs in the supervisor, so no fault of the service can end it. A worker
never outlives its supervisor: when the supervisor ends, the pipe with the orders closes, and the worker stops.

The room runs the whole service, so it imports `serve`, `app`, `wiring` and telemetry. Only the commands import it.
Begin with `node`, which puts the parts together, then read `supervisor` (with the messages between the
processes) and `worker`.
"""
