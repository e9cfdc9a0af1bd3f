"""The agent asks the service for leases, and remembers them until shortly before their end.

The agent never assumes that a lease lasts longer than it does. For this, the agent measures the time of a lease on the
monotonic clock, starting before the request is sent. It uses the wall clock only to decide whether to extend a lease.

    AgentError
    ├── RefusedError
    │   └── NoResourceAvailableError
    └── ServiceAwayError
"""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import quote

from aiohttp import ClientError, ClientSession, ClientTimeout
from yarl import URL

Name = tuple[str, str, str]  # client, pool, key

_RETRIED = (429, 502, 503, 504)
_GONE = (204, 404)


class AgentError(Exception):
    """Root of every error that an agent raises."""


class RefusedError(AgentError):
    """The service refused the request; sending it again at once is of no use. `code` is the code of the problem."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


class NoResourceAvailableError(RefusedError):
    """The region has no resource left."""


class ServiceAwayError(AgentError):
    """No attempt got a final answer, because the service was too busy or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Lease:
    resource: str
    key: str
    region: str
    version: int  # the fencing number
    lease_expires: datetime  # the end of the lease by the store's clock
    # The end of the lease by this process's monotonic clock. The agent read this clock before it sent the request, so
    # this time is never later than the true end.
    good_until_s: float
    acquired: bool  # true: this request gave the key its resource; false: the key already had it


class LeaseAgent:
    """Gets, remembers and gives back the leases of one program. Any number of tasks of one event loop may use it."""

    def __init__(
        self,
        url: str,
        *,
        region: str,
        api_key: str | None = None,
        renew_before_s: float = 1.0,
        enough_ratio: float = 0.5,
        leases_max: int = 10_000,
        attempts_max: int = 5,
        backoff_s: float = 0.05,
        timeout_s: float = 15.0,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        """`region` is the region that new resources come from.

        The agent returns a remembered lease without a request if the lease still lasts longer than `renew_before_s`,
        and at least `enough_ratio` times as long as the caller asks for. The agent remembers the `leases_max` leases
        that were used most recently.
        """
        self._url, self._region = url.rstrip("/"), region
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._renew_before_s, self._enough_ratio, self._leases_max = renew_before_s, enough_ratio, leases_max
        self._attempts_max, self._backoff_s, self._timeout_s = attempts_max, backoff_s, timeout_s
        self._monotonic, self._now, self._sleep, self._rng = monotonic, now, sleep, rng or random.Random()
        self._known: OrderedDict[Name, Lease] = OrderedDict()
        self._asking: dict[Name, asyncio.Task[Lease]] = {}
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = ClientSession(timeout=ClientTimeout(self._timeout_s), headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        assert self._session is not None
        await self._session.close()

    async def get_lease(self, client_id: str, pool_id: str, key: str, lease_expires: datetime) -> Lease:
        """Return a lease until about `lease_expires`, of the resource that the key already has, or of a new one.

        Raises:
            NoResourceAvailableError: the region has no free resource.
            RefusedError: the service rejects the request, or the API key does not allow it.
            ServiceAwayError: no final answer came, so the key may have a resource or not; call again to find out.
        """
        name = (client_id, pool_id, key)
        while True:
            known = self._known.get(name)
            if known is not None and self._is_enough(known, lease_expires):
                self._known.move_to_end(name)
                return known
            asking = self._asking.get(name)
            if asking is None:
                asking = asyncio.create_task(self._ask(name, lease_expires))
                self._asking[name] = asking
                asking.add_done_callback(lambda done: self._asked(name, done))
                return await asyncio.shield(asking)
            lease = await asyncio.shield(asking)  # another task sent this request, perhaps for less time
            if self._is_enough(lease, lease_expires):
                return lease

    async def give_back(self, client_id: str, pool_id: str, key: str) -> None:
        """Give back the key's resource, if it has one.

        Raises:
            RefusedError: the service rejects the request, or the API key does not allow it.
            ServiceAwayError: no final answer came, so it is unknown whether the key still has the resource.
        """
        name = (client_id, pool_id, key)
        asking = self._asking.get(name)
        if asking is not None:
            await asyncio.wait([asking])
        self._known.pop(name, None)
        path = "/v1/leases/" + "/".join(quote(part, safe="") for part in name)
        status, problem, _ = await self._call("DELETE", path, None)
        if status not in _GONE:
            raise _refusal(problem)

    def forget(self, client_id: str, pool_id: str, key: str) -> None:
        """Forget the lease of a key, so that the next `get_lease` for this key sends a request."""
        self._known.pop((client_id, pool_id, key), None)

    def _asked(self, name: Name, done: asyncio.Task[Lease]) -> None:
        del self._asking[name]
        if not done.cancelled():
            done.exception()  # prevents asyncio's warning about an unread error if every waiting task was cancelled

    def _is_enough(self, lease: Lease, lease_expires: datetime) -> bool:
        left_s = lease.good_until_s - self._monotonic()
        wanted_s = (lease_expires - self._now()).total_seconds()
        return left_s > self._renew_before_s and left_s >= wanted_s * self._enough_ratio

    async def _ask(self, name: Name, lease_expires: datetime) -> Lease:
        client_id, pool_id, key = name
        body = {
            "client_id": client_id,
            "pool_id": pool_id,
            "key": key,
            "region": self._region,
            "lease_expires": lease_expires.isoformat(),
        }
        status, answer, asked_s = await self._call("POST", "/v1/leases", body)
        if status != 200:
            self._known.pop(name, None)
            raise _refusal(answer)
        lease = Lease(
            resource=answer["resource"],
            key=key,
            region=answer["region"],
            version=answer["version"],
            lease_expires=datetime.fromisoformat(answer["lease_expires"]),
            good_until_s=asked_s + answer["expires_in"],
            acquired=answer["acquired"],
        )
        self._known[name] = lease
        self._known.move_to_end(name)
        while len(self._known) > self._leases_max:
            self._known.popitem(last=False)
        return lease

    async def _call(self, method: str, path: str, body: object) -> tuple[int, Any, float]:
        """Send a request at most `attempts_max` times, until an answer is final.

        Return the status, the body, and the time on the monotonic clock before the request with this answer was sent.

        Raises:
            ServiceAwayError: no attempt got a final answer.
        """
        assert self._session is not None, "use the agent in an `async with` block"
        failure: object = None
        for attempt in range(self._attempts_max):
            if attempt:
                # The wait is random, from 0 to its maximum ("full jitter"), so that agents do not all retry together.
                await self._sleep(self._rng.uniform(0, self._backoff_s * 2**attempt))
            asked_s = self._monotonic()
            try:
                async with self._session.request(method, URL(self._url + path, encoded=True), json=body) as response:
                    answer = await response.json(content_type=None) if response.status != 204 else None
                    if response.status not in _RETRIED:
                        return response.status, answer, asked_s
                    failure = f"{response.status} {answer}"
            except (ClientError, TimeoutError, ValueError) as error:
                failure = repr(error)
        raise ServiceAwayError(
            f"{self._url} did not answer at any of {self._attempts_max} attempts; the last: {failure}"
        )


def _refusal(problem: Any) -> RefusedError:
    code, detail = problem.get("code", "unknown"), problem.get("detail", "")
    kind = NoResourceAvailableError if code == "no_resource_available" else RefusedError
    return kind(code, detail)
