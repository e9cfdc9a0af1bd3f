"""Handlers of owners: their entries, positions and profiles; erasing and hiding owners.

The module `owners` has the handlers that read entries, and that erase, hide and show an owner. Handlers in most other
folders call its `find_column` to find a ranked column. `positions` reads an owner's positions: on one board, on many
boards in few statements, and compared with the previous period.
"""
