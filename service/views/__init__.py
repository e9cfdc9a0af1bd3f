"""The handlers of the API: one module for each resource, in a folder for each group of resources.

    boards/    leaderboards and families, the audit of a curve, an owner's past periods
    rankings/  pages of a ranking, rows around an owner, positions of values, curves
    owners/    an owner's entry and positions, profiles, erasing and hiding
    posts/     posting, the ingest queue, the journal, event streams
    leases/    pools, their clients and their resources, leases
    keys       API keys

A handler receives a `Context` (what the process holds) and a `Call` (the decoded request). It returns a response of
`service.contract`, bytes, or a `Reply`. It raises a `ProblemError` or a typed error of a lower room; `service.http`
turns either into an HTTP answer.

The most important rule: a handler never trusts what this process remembers of a board to say that something does not
exist. It asks the store first, because another process may have made it. `retry_on_change` runs a handler again when a
board has changed under it.

`owners` is the lowest folder: others import `find_column`, profiles and positions from it, and beyond that the folders
do not import each other. The route table in `service.api` names every handler. Begin there, and read
`rankings/rankings` as a typical resource.
"""
