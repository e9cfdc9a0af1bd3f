"""The bodies that the service answers with, as types, by resource: boards, positions, curves, families, journal, queue.

The OpenAPI document is made from these types, and their docstrings appear in it. The views build the answers. The files
import `problems`, `requests` and `values` of the contract, and each other.

The most important rule: a type holds what goes on the wire and nothing else. Times are text already, and decimals are
their exact digits. A reader begins with `positions`, then `boards`.
"""
