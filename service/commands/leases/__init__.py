"""The commands for leased resources: clients, their pools, and leases of single keys.

The room uses `service.client` and the shared modules of `service.commands`. The service judges; a command only turns
words into requests and answers into text. Begin with `leases`; `pools` also draws the regions of a pool.
"""
