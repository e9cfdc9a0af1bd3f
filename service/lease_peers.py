"""Reads the lease journals of other stores, the peers, for the job `jobs.leases.peer_journals`.

A lease journal is the log of all changes to leases. If a peer does not answer with a page of its journal, the reader
raises `PeerUnavailableError`. The text of this error is logged, so it never holds an API key.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

import aiohttp
import msgspec
from aiohttp import ClientSession, ClientTimeout
from yarl import URL

from jobs.leases.peer_journals import PeerUnavailableError, ReadPeer
from service.contract.lease_messages import LeaseEventLine
from service.contract.problems import ProblemError
from service.contract.values import to_micros
from storage.leases.lease_journal import PublishedLeaseEvent

PATH = "/v1/leases/journal"
TIMEOUT_S = 10.0
_decode = msgspec.json.Decoder(LeaseEventLine).decode


@asynccontextmanager
async def open_peer_reader(peers: Mapping[str, str]) -> AsyncIterator[ReadPeer]:
    """Provide, within the block, a function that reads a page of a peer's journal.

    `peers` maps each peer's name to its URL, in which the password is the API key for that peer.
    """
    async with ClientSession(timeout=ClientTimeout(TIMEOUT_S)) as session:

        async def read_journal(peer: str, after: int, limit: int) -> list[PublishedLeaseEvent]:
            address = URL(peers[peer])
            headers = {} if address.password is None else {"Authorization": f"Bearer {address.password}"}
            url = address.with_user(None).with_password(None) / PATH.lstrip("/") % {"after": after, "limit": limit}
            try:
                async with session.get(url, headers=headers, allow_redirects=False) as response:
                    body = await response.read()
                    if response.status != 200:
                        raise PeerUnavailableError(f"{peer} answered {response.status}")
                return [_event(line) for line in body.splitlines()]
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise PeerUnavailableError(f"{peer} can't be reached: {type(error).__name__}") from error
            except (msgspec.MsgspecError, ValueError, ProblemError) as error:
                raise PeerUnavailableError(f"{peer} did not answer with a journal: {type(error).__name__}") from error

        yield read_journal


def _event(line: bytes) -> PublishedLeaseEvent:
    event = msgspec.structs.asdict(_decode(line))
    number, at, expires = (event.pop(name) for name in ("seq", "at", "lease_expires"))
    at_us = to_micros(datetime.fromisoformat(at))
    expires_at_us = 0 if expires is None else to_micros(datetime.fromisoformat(expires))
    return PublishedLeaseEvent(number=number, at_us=at_us, expires_at_us=expires_at_us, **event)
