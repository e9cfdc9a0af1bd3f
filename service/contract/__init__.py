"""What travels over the wire: the types of requests and answers, names, values, errors, keys and cursors.

    bytes of a request ──> strict_json, post_bodies ──> requests, lease_messages ──> handlers (in `service.views`)
    query string       ──> parameter_text ──> queries ───────────────────────────┘        │
    answers            <── responses, problems, cursors, values <────────────────────────┘

The OpenAPI document is generated from the types in `requests`, `queries`, `lease_messages` and `responses`. The
docstrings of these types appear in the document, so they are written for callers of the API. `routes` defines the
record of a route with its path, types and role. `keys` holds API keys and roles.

The room imports names and errors of storage, jobs and predictor, and no other room of the service. Its most important
rule is that a value is either converted exactly or refused. Nothing is rounded, shortened or dropped silently. Every
refusal is a `ProblemError` with a code from `problems.CODES`. Codes never change. Begin with `problems` and `requests`.
"""
