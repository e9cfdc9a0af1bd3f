"""Handlers of pools and leases: who may lease (clients), what is leased (pools of resources), and leases by their keys.

Operators change clients and pools, and writers look at them. Writers take and give back leases. A lease ends by the
clock of the store; the clock of this process never decides it.

`routes` is the table of these endpoints, which `service.api` adds to its own. Begin with `leases`.
"""
