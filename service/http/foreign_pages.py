"""Keeps foreign web pages away from a service without API keys.

Without keys, every caller on this machine has the role ops, which may do everything. So any web page in a browser on
this machine could send requests with that role. Two headers reveal such a page:

* `Host` holds the name of the page's site, if an attacker made that name resolve to this machine (DNS rebinding).
* `Origin` holds the site and the port of the page. A foreign page has another site or another port than the service.
"""

import re
from functools import lru_cache
from urllib.parse import urlsplit

from service.contract.keys import is_loopback
from service.contract.problems import ProblemError, clip_text

_HOSTS_REMEMBERED = 64
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:@]+?)\.?(:[0-9]{0,5})?")


def refuse_foreign_page(host: str | None, origin: str | None, *, changes: bool) -> None:
    """Refuse a request that may come from a web page other than the service's own page.

    `changes` says whether the request may change anything. A page from another port of this machine may send requests
    that only read, because the browser hides the answers from the page.

    Raises:
        ProblemError: `host_not_allowed`, `forbidden`.
    """
    # Only requests of HTTP/1.0 lack a Host, and no browser uses HTTP/1.0.
    if host is not None and not _is_loopback_host(host):
        detail = f"without API keys the service is reached by a loopback name only, not by {clip_text(host)!r}"
        raise ProblemError("host_not_allowed", detail)
    if origin is None:
        return
    if not is_loopback(_name_of(origin)):
        raise ProblemError("forbidden", "without API keys the service takes no requests from pages of other sites")
    if changes and origin.partition("://")[2].lower() != (host or "").lower():
        raise ProblemError("forbidden", "without API keys the service takes changes from its own page only")


@lru_cache(maxsize=_HOSTS_REMEMBERED)
def _is_loopback_host(host: str) -> bool:
    found = _HOST.fullmatch(host)
    return found is not None and is_loopback(found[1])


def _name_of(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""
