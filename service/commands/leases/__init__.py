"""The commands for leased resources: clients, their pools, and leases of single keys.

The room uses `service.client` and the shared modules of `service.commands`. Begin with `leases`. The module `pools`
also draws the regions of a pool.
"""
