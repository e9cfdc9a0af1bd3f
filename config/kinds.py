"""The kinds of settings: functions that declare a setting, and types that check its value when the service starts."""

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SecretStr

_POSTGRES = ("postgresql://", "postgres://")
_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:/?#,@]*)(?::\d{1,5})?"
_ADDRESS = re.compile(
    rf"postgres(?:ql)?://(?:[^@/?#\[\]]*@)?(?P<hosts>{_HOST}(?:,{_HOST})*)(?:/[^@?#]*)?"
    r"(?:\?(?:[\w%.-]+=[^&#]*(?:&[\w%.-]+=[^&#]*)*)?)?"
)
_HOST_NAME = re.compile(r"[a-z0-9._:-]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_SERVER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")

_PEER_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PEERS_MAX = 16
_SECRET_CHARS_MIN = 32


def parse_peers(text: str) -> dict[str, str]:
    """Parse a list of peers into their URLs by name. Raises ValueError if the text is not a valid list.

    The text is a list of `NAME=URL` with commas between the items. It may be empty. A peer is another store, in which
    the same keys (lease holders) lease resources. All stores must use the same name for the same peer.
    """
    peers: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, equals, url = entry.partition("=")
        parts = urlsplit(url)
        if not equals or not _PEER_NAME.fullmatch(name) or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                "should be NAME=URL, several with commas between them, like us=https://:KEY@us.example:8080"
            )
        if name in peers:
            raise ValueError(f"should name the peer {name!r} only once")
        peers[name] = url.rstrip("/")
    if len(peers) > _PEERS_MAX:
        raise ValueError(f"there should be at most {_PEERS_MAX} peers")
    return peers


def _store_url(url: str) -> str:
    """Check the address of a store. Raises ValueError if it is not valid.

    A path after `sqlite:///` is relative to the working directory, unless the path begins with a slash.
    """
    if url.startswith(_POSTGRES) and "\x00" not in url:
        found = _ADDRESS.fullmatch(url)  # strict, so that no database driver can misread the address
        if not found or any(int(port) > 65_535 for port in re.findall(r":(\d+)(?=,|$)", found["hosts"])):
            raise ValueError(  # the message quotes no part of the address, which may contain a password
                "should be postgresql://USER:PASSWORD@HOST:PORT/DATABASE, where @ / ? # [ and ] of a name or password "
                "are percent-encoded (@ is %40)"
            )
        return url
    path = url.removeprefix("sqlite:///")
    if path == url or not path or "\x00" in path:
        raise ValueError("should be sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE")
    if path == ":memory:":
        raise ValueError("should name a file, because each reader opens the store itself")
    return url


def _listed(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(value) if isinstance(value, list) else value


def _servers(servers: tuple[str, ...]) -> tuple[str, ...]:
    for server in servers:
        found = _SERVER.fullmatch(server)
        if not found or not 0 < int(found[1]) < 65_536:
            raise ValueError("should be HOST:PORT, several with commas between them")
    if len(set(servers)) < len(servers):
        raise ValueError("should name each server only once")
    return servers


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError("should be SCHEME://HOST or SCHEME://HOST:PORT in lower case, or * for any origin")
    return origins


def number(default: float, low: float, high: float, unit: str) -> Any:
    """Declare a numeric setting with its default, its smallest and largest allowed value, and the name of its unit."""
    return Field(default=default, ge=low, le=high, json_schema_extra={"unit": unit})


def text(default: str) -> Any:
    """Declare a text setting with its default. An empty value is not allowed."""
    return Field(default=default, min_length=1)


def _peers(given: str) -> str:
    parse_peers(given)
    return given


def _hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    for host in hosts:
        if not _HOST_NAME.fullmatch(host):
            raise ValueError("should be names or addresses without a port, with commas between them")
    return hosts


def _secrets(secrets: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    if any(len(each.get_secret_value()) < _SECRET_CHARS_MIN for each in secrets):
        raise ValueError(f"should be texts of at least {_SECRET_CHARS_MIN} characters, with commas between them")
    return secrets


PeersText = Annotated[str, AfterValidator(_peers)]
StoreUrl = Annotated[str, AfterValidator(_store_url)]
Servers = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_servers)]
Hosts = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_hosts)]
Secrets = Annotated[
    tuple[SecretStr, ...],
    BeforeValidator(_listed),
    AfterValidator(_secrets),
    # A supervisor dumps the settings for its processes. Texts for people are made in other ways, which hide secrets.
    PlainSerializer(lambda secrets: [each.get_secret_value() for each in secrets]),
]
Origins = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_origins)]
