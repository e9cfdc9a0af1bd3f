"""The commands for leased resources: clients, their pools, and leases of single keys.

The room uses `service.client` and the shared modules of `service.commands`. The service checks the requests. A command
only builds a request from its arguments, and prints the response. Begin with `leases`. The module `pools` also draws
the regions of a pool.
"""
