"""Handlers of pools and leases: who may lease (clients), what is leased (pools of resources), and leases by their keys.

Operators change clients and pools, and writers read them. Writers take and give back leases. The clock of the store
decides when a lease ends; the clock of this process never does.

`routes` is the table of these endpoints, which `service.api` adds to its own. Begin with `leases`.
"""
