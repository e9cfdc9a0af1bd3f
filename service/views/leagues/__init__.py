"""Handlers and routes of leagues, whose rules are in `storage.leagues`.

`leagues` stores a league's specification as that of a family and shows it, takes posts, and lets an owner leave.
`cohorts` shows cohorts, results and divisions, and `cohort_stream` lets clients follow a cohort.
"""
