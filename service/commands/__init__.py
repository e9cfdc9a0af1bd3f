"""The commands of `rankcurve`, one group of commands in each file. `service.cli` assembles them.

    boards     board, family, owner, post, queue, apply
    reading    top, rank, curve, refresh, audit, journal, stream, export
    imports    import                   leases   pool, lease (one file)
    operating  serve, jobs, config, store, partition, keys, backup, restore, rebuild
    language_models  mcp (one file)

The groups share these modules: `target` calls the service and reports failures, `request_commands` declares commands
that only send a request and show the answer, and `tables` prints tables and JSON. `operating.own_store` reads the
settings.

A command talks to a service over HTTP, through the Python client, so that only the service opens its SQLite file. Only
the commands of `operating` open a store or read settings. They import the server and the drivers inside their
functions, so that `--help` and all other commands start quickly.

Commands that send one request are declared by their parameters (`request_commands`). Other commands that call a
service are coroutine functions whose first parameter is an `AsyncClient`; `target.service_command` adds --url and
--key to them. A command turns its arguments into a request, and the response into text. It refuses arguments that it
cannot parse. It leaves all other checks to the service. Begin with `target`, then read `reading.ranks`.
"""
