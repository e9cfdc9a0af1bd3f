"""The commands that read: rankings, ranks, curves, exports, the journal, streams and audits.

The room uses `service.client` and the shared modules of `service.commands`. It never opens a store. The commands never
show an estimate without its bracket. Begin with `ranks`.
"""
