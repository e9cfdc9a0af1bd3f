"""Other stores' journals of leases, over HTTP.

The rule: whatever a peer answers that is no page of its journal leaves as one `PeerAway`, whose text shows no key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

import aiohttp
import msgspec
from aiohttp import ClientSession, ClientTimeout
from yarl import URL

from jobs.exchange import PeerAway, ReadPeer
from storage.lease_journal import LeaseEvent

from ..problems import Problem
from ..values import micros
from .wire import LeaseEventLine

PATH = "/v1/leases/journal"
TIMEOUT_S = 10.0
_decode = msgspec.json.Decoder(LeaseEventLine).decode


@asynccontextmanager
async def peer_reader(peers: Mapping[str, str]) -> AsyncIterator[ReadPeer]:
    """A function that reads pages of peers' journals."""
    async with ClientSession(timeout=ClientTimeout(TIMEOUT_S)) as session:

        async def read(peer: str, after: int, limit: int) -> list[LeaseEvent]:
            address = URL(peers[peer])
            headers = {} if address.password is None else {"Authorization": f"Bearer {address.password}"}
            url = address.with_user(None).with_password(None) / PATH.lstrip("/") % {"after": after, "limit": limit}
            try:
                async with session.get(url, headers=headers, allow_redirects=False) as response:
                    body = await response.read()
                    if response.status != 200:
                        raise PeerAway(f"{peer} answered {response.status}")
                return [_event(line) for line in body.splitlines()]
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise PeerAway(f"{peer} can't be reached: {type(error).__name__}") from error
            except (msgspec.MsgspecError, ValueError, Problem) as error:
                raise PeerAway(f"{peer} answered what is no journal: {type(error).__name__}") from error

        yield read


def _event(line: bytes) -> LeaseEvent:
    told = _decode(line)
    return LeaseEvent(
        number=told.seq,
        client_id=told.client_id,
        pool_id=told.pool_id,
        kind=told.kind,
        resource=told.resource,
        key=told.key,
        region=told.region,
        version=told.version,
        at_us=micros(datetime.fromisoformat(told.at)),
        expires_at_us=0 if told.lease_expires is None else micros(datetime.fromisoformat(told.lease_expires)),
    )
