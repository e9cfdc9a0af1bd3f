"""Keeps web pages away from a service without keys, where everybody who reaches loopback is ops: a browser reaches it.

The `Host` shows a page whose own name was made to resolve to this machine (DNS rebinding). The `Origin` shows a page of
another site or of another port.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import urlsplit

from .keys import is_loopback
from .problems import Problem, shown

_HOSTS_REMEMBERED = 64
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:@]+?)\.?(:[0-9]{0,5})?")


def refuse_foreign_page(host: str | None, origin: str | None, *, changes: bool) -> None:
    """Let a request pass that no web page but the service's own can have made.

    `host` and `origin` are the headers; None: the request has none. A page of another port of this machine may read,
    for its browser keeps the answer from it, but not change anything.

    Raises:
        Problem: `host_not_allowed`, `forbidden`.
    """
    # Only HTTP/1.0 has no host, which no browser speaks.
    if host is not None and not _is_loopback_host(host):
        detail = f"without API keys the service is reached by a loopback name only, not by {shown(host)!r}"
        raise Problem("host_not_allowed", detail)
    if origin is None:
        return
    if not is_loopback(_name_of(origin)):
        raise Problem("forbidden", "without API keys the service takes no requests from pages of other sites")
    if changes and origin.partition("://")[2].lower() != (host or "").lower():
        raise Problem("forbidden", "without API keys the service takes changes from its own page only")


@lru_cache(maxsize=_HOSTS_REMEMBERED)
def _is_loopback_host(host: str) -> bool:
    found = _HOST.fullmatch(host)
    return found is not None and is_loopback(found[1])


def _name_of(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""
