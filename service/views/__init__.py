"""The handlers of the API: one module for each resource, in a folder for each group of resources.

    boards/    leaderboards, families and their grants, an owner's past periods
    rankings/  pages of a ranking, rows around an owner, positions of values, curves and their audit
    owners/    an owner's entry, positions, profile and export; joining, erasing and hiding
    posts/     posting, the ingest queue, held posts, the journal, event streams
    leagues/   leagues and their cohorts
    leases     pools, their clients and their resources, leases
    events     events, and the webhooks that receive them
    acts       the acts of operators
    api_keys   API keys; `tokens` has the tokens of players

A handler receives a `Context` (the shared objects of the process) and a `Call` (the parsed request). It returns a
struct of `service.contract`, bytes, a `Reply`, or None for an answer 204. If it fails, it raises a `ProblemError` or an
error of a package below. `service.http` turns results and errors into HTTP answers.

Before a handler answers that something does not exist, it asks the store, because another process may have created it.
`retry_on_change` runs a handler again if a board has changed since this process read it.

Most folders import from `owners`. Otherwise they share little: `leagues` builds on `boards` and `posts`, and a few
modules show what belongs to another folder. Begin with the route table in `service.api`, then read `rankings/rankings`.
"""
