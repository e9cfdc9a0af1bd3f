"""The types of answers, from which the OpenAPI document is made. The document shows their docstrings to users.

`positions` has the answers with ranks, `journal` those about journals, streams and profiles, `acts`
those about acts of operators, and `boards` all others.
The most important rule: a type has exactly the fields that the caller receives. Times are already text, and decimals
have their exact digits. Begin with `positions`, then read `boards`.
"""
