"""The types of answers. Each resource has its own file: boards, positions, curves, families, journal, queue.

The OpenAPI document is made from these types and shows their docstrings. The most important rule: a type has exactly
the members that the caller receives. Times are already text, and decimals have their exact digits. Begin with
`positions`, then read `boards`.
"""
