"""The HTTP service and the command line, which translate between the wire and the records of storage.

Each package or module may import those above it in this list:

    contract     the types, names and errors that travel over the wire
    telemetry    logs, traces and metrics
    http         the steps that every request goes through before and after its handler
    ranks        finds ranks, and reads pages of a ranking
    streams      the server-sent events that clients follow
    monitoring   managed objects, Jolokia, the dashboard and the API page
    context      the parts of one process; `stores` opens stores, and `webhook_sender` sends events to webhooks
    views        the handlers of all routes; `health_routes` adds the routes for operators and monitors
    resp         serves Redis clients on a port of their own, beside `views`
    lease_peers  reads the lease journals of other stores, for a job
    api, app     the route table, and the server that uses it in place of aiohttp's application
    wiring       builds the context of one process; handlers never import it
    own_packages keeps a process from importing foreign packages that share a name with ours, such as `config`
    serve        one serving process from start to stop; `processes` runs several of them
    commands     the commands that `cli` assembles

`entry_point` is a folder, but not a package. Its only module is where the command `rankcurve` starts.

No other package of the project imports this one. If you are new here, begin with `api`, which shows what handler serves
each path, and with `wiring`, which shows the parts of a process. A request travels through `http.endpoint` to a handler
in `views`.
"""
