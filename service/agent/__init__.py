"""For programs that lease resources: an async client that asks the service seldom.

    async with LeaseAgent("http://127.0.0.1:8080", region="eu", api_key="…") as agent:
        lease = await agent.get_lease("acme", "numbers", "call-8812", datetime.now(UTC) + timedelta(minutes=5))
        dial_from(lease.resource)  # lease.version fences what it is used for

The rule: nothing of the service is imported here, so that a client may copy or install this package alone; it needs
aiohttp.
"""

from .agent import LeaseAgent
from .leases import AgentError, Lease, NoResourceAvailable, Refused, ServiceAway

__all__ = ["AgentError", "Lease", "LeaseAgent", "NoResourceAvailable", "Refused", "ServiceAway"]
