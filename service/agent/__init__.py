"""An async client for programs that lease resources. It sends few requests to the service.

    async with LeaseAgent("http://127.0.0.1:8080", region="eu", api_key="…") as agent:
        lease = await agent.get_lease("acme", "numbers", "call-8812", datetime.now(UTC) + timedelta(minutes=5))
        dial_from(lease.resource)  # lease.version is its fencing number

The agent remembers each lease and returns it again until shortly before its end. The agent asks the service only for a
new lease, or for more time.

This package imports nothing of the service, so a program may copy or install it without the service. It needs aiohttp.

Begin with `agent`. `leases` has the lease that the agent returns and the errors that it raises.
"""

from .agent import LeaseAgent
from .leases import AgentError, Lease, NoResourceAvailableError, RefusedError, ServiceAwayError

__all__ = ["AgentError", "Lease", "LeaseAgent", "NoResourceAvailableError", "RefusedError", "ServiceAwayError"]
