"""The types of answers. `positions` has the ranks, `journal` has journals, streams and profiles, and `boards` the rest.

The OpenAPI document is made from these types and shows their docstrings. The most important rule: a type has exactly
the members that the caller receives. Times are already text, and decimals have their exact digits. Begin with
`positions`, then read `boards`.
"""
