"""The types of answers. Each resource has its own file: boards, positions, curves, families, journal, queue.

The OpenAPI document is made from these types, and their docstrings appear in it. The views build the answers. The files
import `problems`, `requests` and `values` of the contract, and each other.

A type has exactly the members that the caller receives; this is the most important rule. In these types, times are
already text, and decimals have their exact digits. Begin with `positions`, then read `boards`.
"""
