"""The contract with callers: the types of requests and answers, names, values, errors, API keys and cursors.

    bytes of a request ──> strict_json, post_bodies ──> requests, lease_messages ──> handlers (in `service.views`)
    query string       ──> queries ──────────────────────────────────────────────┘        │
    answers            <── responses, problems, cursors, values <────────────────────────┘

The OpenAPI document is generated from the types in `requests`, `queries`, `lease_messages` and `responses`. It shows
the docstrings of the types of bodies and answers, so these docstrings are written for users of the HTTP API.

A value is either converted exactly or refused, because a score that is rounded or shortened on the way in would be
wrong for ever, and nobody would notice. Every refusal is a `ProblemError` with a code from `problems.CODES`, and codes
never change.

This package imports no other package of `service`. To read it, begin with `problems` and `requests`.
"""
