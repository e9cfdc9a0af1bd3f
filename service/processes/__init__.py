"""The processes of one node: the supervisor of `rankcurve serve --workers N`, its workers, and a process for jobs.

    supervisor ──orders (a pipe to standard input)──> worker1 … workerN   serve: front ends on one shared port
               <──report (standard output)──────────  jobs1               jobs: refreshes, folds, audits, …

    place ──> starting ──ready──> running ──crash──> pause ──> starting …
                 │ refused or crashed at its first start: the whole node stops, exit code 1

A place (`ProcessSlot`) has one process at a time. If the process crashes, the supervisor starts another one there.

The most important rule: no part of the service runs in the supervisor, so no fault of the service can end it. A worker
never outlives its supervisor: when the supervisor ends, the pipe with the orders closes, and the worker stops.

This package runs the whole service, so it may import `serve`, `app`, `wiring` and telemetry. Only the commands import
it. Begin with `node`, which puts the parts together. Then read `supervisor`, which also defines the messages between
the processes, and `worker`.
"""
