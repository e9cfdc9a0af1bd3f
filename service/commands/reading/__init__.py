"""The commands that read: rankings, ranks, curves with their refreshes and audits, exports, the journal and streams.

The room uses the Python client and the shared modules of `service.commands`. It never opens a store. The commands never
show an estimate without its bracket. Begin with `ranks`.
"""
