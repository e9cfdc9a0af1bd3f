"""The commands of `rankcurve`, one group of commands in each file. `service.cli` assembles them.

    boards     board, family, owner, refresh          reading     top, rank, curve, journal, stream, export, audit
    imports    import, streaming and resumable        operating   serve, jobs, config, keys, queue, backup, rebuild
    leases     client, pool, lease

The groups share these modules: `target` (which service to call, and how failures reach the shell), `tables` (what a
command prints), `settings` (how settings are read) and `numbers` (negative numbers as arguments).

A command talks to a service over HTTP, through `service.client`, so that only the service opens its SQLite file. Only
the commands of `operating` open a store or read settings. They import the server and the drivers inside their
functions, so that `--help` and all other commands start quickly.

A command turns its arguments into a request, and the response into text. It refuses arguments that it cannot parse, and
checks nothing that the service checks. Begin with `target`, then read `reading.ranks`.
"""
