"""The commands for boards, families and owners: create, change, show and delete them.

The room uses the Python client and the shared modules of `service.commands`. `board split` comes from `operating`.
Begin with `boards`.
"""
