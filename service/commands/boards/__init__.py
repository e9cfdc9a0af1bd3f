"""The commands for boards, families and owners: create, change, show and delete them.

The package uses the Python client and the shared modules of `service.commands`. `board split` is defined in
`operating.board_moves`. Begin with `boards`.
"""
