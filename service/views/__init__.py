"""The handlers of the API: one module for each resource, in a folder for each group of resources.

    boards/    leaderboards and families, an owner's past periods
    rankings/  pages of a ranking, rows around an owner, positions of values, curves and their audit
    owners/    an owner's entry and positions, profiles, erasing and hiding
    posts/     posting, the ingest queue, the journal, event streams
    leases/    pools, their clients and their resources, leases
    keys       API keys

A handler receives a `Context` (the objects of the process) and a `Call` (the decoded request). It returns a type of
`service.contract`, bytes, a `Reply`, or None for an answer 204. Or it raises a `ProblemError` or a typed error of a
lower room. `service.http` turns results and errors into HTTP answers.

A handler asks the store before it answers that something does not exist, because another process may have created it.
`retry_on_change` runs a handler again if a board has changed while the handler ran.

`owners` is the lowest folder: the others import from it, and not from each other. Begin with the route table in
`service.api`, then read `rankings/rankings`.
"""
