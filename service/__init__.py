"""The HTTP service and the command line. They translate between the wire and the records of storage.

Each package or module may import those above it in this list:

    contract     the types, names and errors that travel over the wire
    telemetry    logs, traces and metrics
    http         what the service does with every request before and after its handler
    ranks        finds ranks, and reads pages of a ranking
    streams      makes the server-sent events that clients follow
    monitoring   managed objects, Jolokia, the dashboard and the API page
    context      the parts of one process; `stores` opens stores
    views        one handler for each route; `health_routes` adds the routes of operators and monitors
    lease_peers  reads the lease journals of other stores, for a job
    api, app     the route table, and the server that answers from it, without aiohttp's application
    wiring       builds the context of one process; handlers never import it
    own_packages keeps processes from importing foreign packages that have the names of ours, such as `config`
    serve        one serving process from start to stop; `processes` runs several of them
    commands     the commands that `cli` assembles

`entry_point` is a folder, but no package. The command `rankcurve` starts in its only module.

No other package of the project imports this one. A reader begins with `api` (which handler serves which path) and
`wiring` (what a process consists of). A request travels through `http.endpoint` to a handler in `views`.
"""
