"""Sends signed events to webhooks, as Standard Webhooks 1.0 describes, and decides which addresses they may go to.

A receiver's URL comes from an operator, and the address behind it from a DNS server that may belong to somebody else.
So that nobody can make the service call a machine that only the service can reach, it sends events by `https` only, to
public addresses only, and to the very address that it has checked, and it follows no redirects. None of this applies to
the hosts in the setting `webhook_hosts`.
"""

import base64
import errno
import hashlib
import hmac
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any

import aiohttp
import msgspec
from aiohttp import ClientSession, ClientTimeout, TCPConnector, ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from jobs.errors import DeliveryFailedError
from jobs.events.deliver import SendEvent
from service.contract.values import format_us
from storage.events.event_log import Event

TIMEOUT_S = 10.0
CONNECTIONS_MAX = 32
SECRET_BYTES = 24
SECRET_PREFIX = "whsec_"
_NAT64 = IPv6Network("64:ff9b::/96")  # such an address stands for an IPv4 address, which may be private


def sign(secret: str, delivery_id: str, at_s: int, body: bytes) -> str:
    """Sign a delivery. The signature is `v1,` and the base64 form of the HMAC-SHA256 over "id.timestamp.body"."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    mac = hmac.new(key, f"{delivery_id}.{at_s}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"


def is_public(address: str) -> bool:
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        if ip in _NAT64 or ip.sixtofour is not None or ip.teredo is not None:
            return False
        ip = ip.ipv4_mapped or ip
    return ip.is_global and not ip.is_multicast


def find_fault(url: str, hosts: Sequence[str]) -> str | None:
    """Say why events can't be sent to a URL, as far as its text shows, or return None. `hosts`: see `webhook_hosts`."""
    try:
        target = URL(url)
    except ValueError:
        return "it is not a URL"
    if target.host is None or target.scheme not in ("http", "https") or target.user or target.password:
        return "it should be https://HOST/PATH, without a user"
    if target.host in hosts:
        return None
    if target.scheme != "https":
        return "it should begin with https://, unless the setting webhook_hosts names the host"
    try:
        public = is_public(target.host)
    except ValueError:
        return None  # a name; its addresses are checked when it is resolved
    return None if public else "its address is not public, and the setting webhook_hosts does not name it"


class _PublicResolver(AbstractResolver):
    """Resolves host names. A host must have public addresses only, unless an operator trusts the host."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts, self._resolver = hosts, ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if host not in self._hosts and not all(is_public(each["host"]) for each in found):
            raise OSError(errno.EACCES, f"{host} has an address that is not public")
        return found

    async def close(self) -> None:
        await self._resolver.close()


@asynccontextmanager
async def open_sender(hosts: Sequence[str]) -> AsyncIterator[SendEvent]:
    """Provide, within the block, a function that sends an event to a webhook. `hosts`: see `webhook_hosts`."""
    connector = TCPConnector(resolver=_PublicResolver(hosts), use_dns_cache=False, limit=CONNECTIONS_MAX)
    async with ClientSession(connector=connector, timeout=ClientTimeout(TIMEOUT_S), trust_env=False) as session:

        async def send(url: str, secrets: Sequence[str], delivery_id: str, event: Event) -> None:
            if (fault := find_fault(url, hosts)) is not None:
                raise DeliveryFailedError(f"the URL is not allowed: {fault}")
            body, at_s = encode_event(event), int(time.time())
            headers = {
                "Content-Type": "application/json",
                "webhook-id": delivery_id,
                "webhook-timestamp": str(at_s),
                "webhook-signature": " ".join(sign(secret, delivery_id, at_s, body) for secret in secrets),
            }
            try:
                async with session.post(url, data=body, headers=headers, allow_redirects=False) as response:
                    if not 200 <= response.status < 300:
                        raise DeliveryFailedError(f"the receiver answered {response.status}")
            except TimeoutError as error:
                raise DeliveryFailedError(f"the receiver did not answer within {TIMEOUT_S:g} s") from error
            except (aiohttp.ClientError, OSError) as error:
                raise DeliveryFailedError(f"the receiver can't be reached: {error}") from error

        yield send


def show_grant(event: Event) -> dict[str, str | None]:
    """Build the members that only an event about a grant has: the grant's id and its owner."""
    if event.grant is None:
        return {}
    return {"grant": event.grant, "owner": event.owner}


def encode_event(event: Event) -> bytes:
    data: dict[str, Any] = {"seq": event.number, "board": event.board_id, **show_grant(event)}
    return msgspec.json.encode({"type": event.type, "timestamp": format_us(event.at_us), "data": data})
