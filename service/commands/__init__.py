"""The commands of `rankcurve`, one group of commands in each file. `service.cli` assembles them.

    boards     board, family, owner, refresh          reading     top, rank, curve, journal, stream, export, audit
    imports    import, streaming and resumable        operating   serve, jobs, config, keys, queue, backup, rebuild
    leases     client, pool, lease

Beside them stand the parts that groups share: `target` (which service, and how failures reach the shell), `tables`
(what a command prints), `settings` and `numbers`.

The rule: a command talks to a service over HTTP, through `service.client`, so that one process keeps owning a SQLite
file. Only the commands of `operating` open a store or read settings. They import the server and the drivers inside
their functions, so that `--help` and all other commands start quickly.

A command turns words into a request and an answer into text. It judges nothing that the service judges. Begin with
`target`, then read `reading.ranks`.
"""
