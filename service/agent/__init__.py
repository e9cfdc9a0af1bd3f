"""For programs that lease resources: an async client that asks the service seldom.

    async with LeaseAgent("http://127.0.0.1:8080", region="eu", api_key="…") as agent:
        lease = await agent.get_lease("acme", "numbers", "call-8812", datetime.now(UTC) + timedelta(minutes=5))
        dial_from(lease.resource)  # lease.version fences what it is used for

The agent remembers leases and hands them out again until shortly before their end. It asks the service only for a new
lease, or for more time.

The rule: this package imports nothing of the service, so that a program may copy or install it alone. It needs aiohttp.
Begin with `agent`; `leases` has what it hands out and what it raises.
"""

from .agent import LeaseAgent
from .leases import AgentError, Lease, NoResourceAvailableError, RefusedError, ServiceAwayError

__all__ = ["AgentError", "Lease", "LeaseAgent", "NoResourceAvailableError", "RefusedError", "ServiceAwayError"]
