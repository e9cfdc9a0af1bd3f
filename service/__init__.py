"""The HTTP service and the command line. They translate between the wire and the records of storage.

Each room may import the rooms that stand before it in this list:

    contract     the types, names and errors that travel over the wire
    telemetry    logs, traces and metrics
    http         what the service does with every request before and after its handler
    ranks        finding ranks and pages of a ranking
    streams      the feed that server-sent events come from
    monitoring   managed objects, Jolokia, the dashboard and the API page
    context      the parts of one process; `stores` opens stores
    views        one handler for each route; `health_routes` adds the routes of operators and monitors
    lease_peers  reads the lease journals of other stores, for a job
    api, app     the route table, and the server that answers from it, without aiohttp's application
    wiring       builds the context of one process; handlers never import it
    serve        one serving process from start to stop; `processes` runs several of them
    own_packages makes sure that foreign packages of the same names are never imported, in child processes too
    commands     the commands that `cli` assembles; `demo` sets up a sample season

`entry_point` is no package. Its one module is where the command `rankcurve` starts.

No other package of the project imports this one. A reader begins with `api` (which handler serves which path) and
`wiring` (what a process consists of). A request travels through `http.endpoint` to a handler in `views`.
"""
