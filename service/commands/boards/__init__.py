"""The commands for boards, families and owners: create, change, show and delete them, and refresh curves.

The room uses `service.client`, the shared modules of `service.commands`, and `reading.ranks` for options and brackets.
The service checks a specification. A command only makes one from its arguments, and refuses arguments that it cannot
parse. Begin with `boards`.
"""
