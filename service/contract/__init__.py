"""What travels over the wire: the types of requests and answers, names, values, errors, keys and cursors.

    bytes of a request ──> strict_json, post_bodies ──> requests, lease_messages ──> handlers (in `service.views`)
    query string       ──> parameter_text ──> queries ───────────────────────────┘        │
    answers            <── responses, problems, cursors, values <────────────────────────┘

The OpenAPI document is generated from the types in `requests`, `queries`, `lease_messages` and `responses`. The
docstrings of bodies and answers appear in it, so they are written for callers of the API. `routes` defines the record
of a route with its path, types and role. `keys` holds API keys and roles.

The room imports names and errors of storage, jobs and predictor, and no other room of the service. Its most important
rule: a value is converted exactly, or refused. Nothing is rounded, shortened or dropped silently. Every
refusal is a `ProblemError` with a code from `problems.CODES`; codes never change. A reader begins with `problems` and
`requests`.
"""
