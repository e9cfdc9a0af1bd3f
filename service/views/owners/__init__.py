"""Handlers of owners: their entries, positions and profiles; erasing and hiding owners.

`owners` has the handlers that read entries, and those that erase, hide and show an owner. Most other views use its
`find_column` to find a ranked column. `positions` reads an owner's positions: on one board, on many boards in few
statements, and compared with the previous period.
"""
