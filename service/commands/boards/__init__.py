"""The commands for boards, families and owners: create, change, show and delete them.

The room uses the Python client, the shared modules of `service.commands`, and `reading.ranks` for options and brackets.
Begin with `boards`.
"""
