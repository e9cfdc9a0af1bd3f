"""The HTTP client of the service, for the commands and the demo, and a reader for the lease journals of other stores.

`client` has `ServiceClient`, which sends requests and decodes the responses. `client_answers` has the types of the
responses. `lease_peers` does not use `ServiceClient`: it reads the lease journals of other stores for the jobs.

    send ──2xx────────────────────────────────────────────────> body
         ──429 or 503 with Retry-After────────────────────────> wait ──> again, at most `attempts_max` attempts
         ──502, 504, lost connection, if the caller reconnects──> wait ──> again
         ──anything else────────────────────────────────────────> ClientError

The most important rule: every failure is raised as one `ClientError`. The error's text is a single line that is safe to
print on a terminal. The number of attempts, each wait and the number of pages have a bound.

The room may import `contract`; only `lease_peers` also imports jobs and storage. Begin with `client`.
"""
