"""Handlers of pools, which are sets of resources, and of leases, which give a resource to a key for a limited time.

Operators change pools. Callers with the role writer read pools, ask for leases and give them back. The clock of the
store decides when a lease ends, not the clock of this process. Each module ends with its routes. Begin with `leases`.
"""
