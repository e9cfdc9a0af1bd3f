"""Handlers of clients, who own pools; of pools, which hold resources; and of leases, which keys have on resources.

Operators change clients and pools, and writers read them. Writers take and give back leases. The clock of the store
decides when a lease ends, not the clock of this process.

`routes` is the table of these routes, which `service.api` adds to its own table. Begin with `leases`.
"""
