"""Handlers of owners: their entries, positions, profiles and exports, and how they join, are erased and are hidden.

The module `owners` has the handlers that read entries, and that erase, hide and show an owner. Handlers in most other
folders call its `find_column` to find a ranked column. `positions` reads an owner's positions: on one board, on many
boards in few statements, or compared with the previous period.
"""
