"""Why here: how the setting `lease_peers` is written is checked where settings are, and read where peers are asked.

The one rule: a peer has the name by which every other store calls it, too.
"""

import re
from urllib.parse import urlsplit

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PEERS_MAX = 16


def parse_peers(text: str) -> dict[str, str]:
    """`NAME=URL`, separated by commas; none for an empty text. Raises ValueError."""
    peers: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, equals, url = entry.partition("=")
        parts = urlsplit(url)
        if not equals or not _NAME.fullmatch(name) or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("should be NAME=URL by commas, like us=https://:KEY@us.example:8080")
        if name in peers:
            raise ValueError(f"should name {name!r} once")
        peers[name] = url.rstrip("/")
    if len(peers) > _PEERS_MAX:
        raise ValueError(f"there should be at most {_PEERS_MAX} peers")
    return peers
