"""The types of answers, a file for each resource: boards, positions, curves, families, journal, queue.

The OpenAPI document is made from these types, and their docstrings appear in it. The views build the answers. The files
import `problems`, `requests` and `values` of the contract, and each other.

The most important rule: a type has exactly the members that are sent to the caller. Times are already text, and
decimals have their exact digits. A reader begins with `positions`, then `boards`.
"""
