"""The commands for boards, families and owners: create, change, show and delete them, and refresh curves.

The room uses `service.client`, the shared modules of `service.commands`, and `reading.ranks` for options and brackets.
Begin with `boards`.
"""
