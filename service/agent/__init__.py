"""An async client for programs that lease resources. It sends few requests to the service.

    async with LeaseAgent("http://127.0.0.1:8080", region="eu", api_key="…") as agent:
        lease = await agent.get_lease("acme", "numbers", "call-8812", datetime.now(UTC) + timedelta(minutes=5))
        dial_from(lease.resource)  # lease.version is its fencing number

The agent remembers each lease, and returns the remembered lease until shortly before the lease ends. It sends a request
only to get, extend or give back a lease.

This package imports nothing of the service, so a program may copy or install it without the service. It needs aiohttp.
Begin with `agent`.
"""

from .agent import AgentError, Lease, LeaseAgent, NoResourceAvailableError, RefusedError, ServiceAwayError

__all__ = ["AgentError", "Lease", "LeaseAgent", "NoResourceAvailableError", "RefusedError", "ServiceAwayError"]
