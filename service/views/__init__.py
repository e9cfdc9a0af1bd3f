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

A handler asks the store before it answers that something does not exist. What this process
remembers of a board is not enough, because another process may have changed it. `retry_on_change` runs a handler again
if a board has changed while the handler ran.

`owners` is the lowest folder: the others import `find_column`, profiles and positions from it. The other folders do not
import each other. The route table in `service.api` names every handler. Begin there, and read
`rankings/rankings` as a typical resource.
"""
