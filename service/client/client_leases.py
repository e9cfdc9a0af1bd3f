"""Requests for pools and leases with a `ServiceClient`, for the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from .client import PAGE_ENTRIES_MAX, ServiceClient, decode_answer, quote_segment

Record = dict[str, Any]


def client_path(client_id: str) -> str:
    return f"/v1/clients/{quote_segment(client_id)}"


def pool_path(client_id: str, pool_id: str) -> str:
    return f"/v1/pools/{quote_segment(client_id)}/{quote_segment(pool_id)}"


def lease_path(client_id: str, pool_id: str, lease_key: str) -> str:
    return f"/v1/leases/{quote_segment(client_id)}/{quote_segment(pool_id)}/{quote_segment(lease_key)}"


async def list_records(
    client: ServiceClient, path: str, member: str, *, limit: int, query: Mapping[str, str] | None = None
) -> list[Record]:
    """Return at most `limit` records of a list that comes in pages. `member` is the list's name in a page."""
    found: list[Record] = []
    cursor: str | None = None
    while len(found) < limit:
        asked = {"limit": str(min(limit - len(found), PAGE_ENTRIES_MAX)), **(query or {})}
        answer = await client.request_answer("GET", path, Record, query=asked | ({"cursor": cursor} if cursor else {}))
        found += answer.get(member) or []
        if not answer.get("next") or answer["next"] == cursor:
            break
        cursor = answer["next"]
    return found[:limit]


async def read_lease_journal(client: ServiceClient, after: int, limit: int) -> list[Record]:
    """Return the first events of resources after the sequence number `after`."""
    query = {"after": str(after), "limit": str(min(limit, PAGE_ENTRIES_MAX))}
    lines = (await client.send_request("GET", "/v1/leases/journal", query=query)).splitlines()
    return [decode_answer(line, Record) for line in lines]


def split_names(names: Sequence[str], size: int) -> list[list[str]]:
    return [list(names[start : start + size]) for start in range(0, len(names), size)]


def add_up_figures(answers: Sequence[Record]) -> Record:
    """Return the sums of the figures of several responses, by name."""
    total: Record = {}
    for answer in answers:
        for name, count in answer.items():
            total[name] = total.get(name, 0) + count
    return total


def record_line(record: Record) -> str:
    return msgspec.json.encode(record).decode()
