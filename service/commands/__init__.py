"""The commands of `rankcurve`, one group of commands in each file. `service.cli` assembles them.

    boards    board, family, owner                 reading    top, rank, curve, refresh, audit, journal, stream, export
    imports   import                               operating  serve, jobs, config, keys, queue, backup, rebuild
    leases    pool, lease (one file)

The groups share these modules: `target` (which service to call, and how failures reach the shell), `requests` (commands
that only send a request and show the answer), `tables` (what a command prints) and `settings` (how settings are read).

A command talks to a service over HTTP, through the Python client, so that only the service opens its SQLite file. Only
the commands of `operating` open a store or read settings. They import the server and the drivers inside their
functions, so that `--help` and all other commands start quickly.

Commands that send one request are declared by their parameters (`requests`). The others are coroutine functions that
take an `AsyncClient` first; `target.service_command` gives them --url and --key. A command turns its arguments into a
request, and the response into text. It refuses arguments that it cannot parse, and checks nothing that the service
checks. Begin with `target`, then read `reading.ranks`.
"""
