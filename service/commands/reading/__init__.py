"""The commands that read rankings, ranks, curves, the journal and streams, or refresh and audit curves.

The package uses the Python client and the shared modules of `service.commands`. It never opens a store. The commands
never show an estimated rank without its bracket, the range that contains the true rank. Begin with `ranks`.
"""
