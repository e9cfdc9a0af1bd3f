"""Parses the setting `lease_peers`. A peer is another store, in which the same keys (lease holders) lease resources.

All stores must use the same name for the same peer.
"""

import re
from urllib.parse import urlsplit

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PEERS_MAX = 16


def parse_peers(text: str) -> dict[str, str]:
    """Return the URL of each peer by the peer's name. Raises ValueError if the text is not a valid list of peers.

    The text is a list of `NAME=URL` with commas between the items. It may be empty.
    """
    peers: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, equals, url = entry.partition("=")
        parts = urlsplit(url)
        if not equals or not _NAME.fullmatch(name) or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                "should be NAME=URL, several with commas between them, like us=https://:KEY@us.example:8080"
            )
        if name in peers:
            raise ValueError(f"should name the peer {name!r} only once")
        peers[name] = url.rstrip("/")
    if len(peers) > _PEERS_MAX:
        raise ValueError(f"there should be at most {_PEERS_MAX} peers")
    return peers
