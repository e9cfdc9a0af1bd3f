"""The commands that read rankings, ranks, curves, the journal and streams, or refresh and audit curves.

The room uses the Python client and the shared modules of `service.commands`. It never opens a store. The commands never
show an estimate without its bracket. Begin with `ranks`.
"""
