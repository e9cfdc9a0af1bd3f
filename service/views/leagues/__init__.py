"""Handlers and routes of leagues. The rules are in `storage.leagues`.

`leagues` stores and shows the specification of a league, which becomes that of a family, takes posts, and lets an owner
leave. `cohorts` shows cohorts, results and divisions.
"""
