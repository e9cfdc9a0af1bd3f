"""The processes of one node: the supervisor of `rankcurve serve --workers N`, its workers, and a process for jobs.

    supervisor ──orders (a pipe to standard input)──> worker1 … workerN   serve requests on one shared port
               <──report (standard output)──────────  jobs1               runs jobs, such as refreshes of curves
                                                      owner               on a SQLite file, writes and runs the jobs

Each name, such as worker1, is a place (`ProcessSlot`). If the process in a place crashes, another one starts there:

    starting ──ready──> running ──crash──> pause ──> starting …
       │ refused or crashed at the first start in this place: the whole node stops, exit code 1

No part of the service runs in the supervisor, so no fault in the service can end the process that has to repair it. A
worker never outlives its supervisor: when the supervisor ends, the pipe with the orders closes, and the worker stops.

This package runs the whole service, so it may import `serve`, `app`, `wiring` and telemetry. Only the commands import
it. Begin with `node`, which puts the parts together. Then read `supervisor`, which also defines the messages between
the processes, and `worker`.
"""
