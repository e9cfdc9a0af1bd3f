"""The HTTP client of the service: what the commands, the demo and the peers of a store use to speak to it.

`client` has `ServiceClient`, with one method for each request that a command needs. `client_answers` has the responses,
decoded loosely on purpose, so that an older command line works against a newer service. `client_events` reads event
streams, and `client_leases` handles pools and leases. `lease_peers` is a client of its own: it reads the lease journals
of other stores for the jobs.

    send ──2xx────────────────────────────────────────────────> body
         ──429 or 503 with Retry-After────────────────────────> wait ──> again, at most `attempts_max` attempts
         ──502, 504, lost connection, if the caller reconnects──> wait ──> again
         ──anything else────────────────────────────────────────> ClientError

The most important rule: whatever goes wrong leaves as one `ClientError` with a single line fit for a terminal. Every
attempt, wait and walk over pages has a bound.

The room may import `contract`; only `lease_peers` also imports jobs and storage. Begin with `client`.
"""
