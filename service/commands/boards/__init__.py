"""The commands for boards, families, owners and posts: create, change, show and delete them.

The package uses the Python client and the shared modules of `service.commands`. `board split` is defined in
`operating.partitions`. Begin with `boards`.
"""
