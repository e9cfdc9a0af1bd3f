"""Handlers of pools, which hold resources, and of leases, which give resources to keys.

Operators change pools. Writers read them, and take and give back leases. The clock of the store decides
when a lease ends, not the clock of this process. Each module ends with the table of its routes. Begin with `leases`.
"""
