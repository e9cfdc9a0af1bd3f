"""API keys and roles: who is calling, and what that caller may do.

The store has only the SHA-256 of each key, so a stolen store gives nobody access. A plain hash is enough, because a key
is 256 random bits rather than a password that a person chose.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from storage.boards.api_keys import StoredKey

from .players import Player
from .problems import ProblemError, ServiceError
from .values import format_us

if TYPE_CHECKING:
    from .player_tokens import PlayerTokens

KEY_PREFIX = "rk"
KEY_ID_BYTES = 5
SECRET_BYTES = 32
HEADER_CHARS_MAX = 1024
TOKEN_CHARS_MAX = 4_096
_DOTS_OF_TOKEN = 2  # a player token has three parts; no API key has a dot
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="rankcurve", Basic realm="rankcurve"'}


class OpenToOthersError(ServiceError):
    """Without any API key the service binds to loopback only. Make a key first with `rankcurve keys create --store`."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{self.__class__.__doc__} The host asked for is {host!r}.")


class Role(IntEnum):
    """The rights of a caller. Each role includes the rights of the lower roles."""

    READER = 1
    PLAYER = 2  # of a player token, which allows a few requests that concern its owner
    WRITER = 3
    OPS = 4


@dataclass(frozen=True, slots=True)
class Identity:
    key_id: str  # the id of the API key; "-" or "anonymous" if the caller has no key
    role: Role
    player: Player | None = None  # what the caller's player token allows; None: the caller has none

    @property
    def stored_key(self) -> str | None:
        """Return the id of the API key, or None if the caller has no key."""
        return None if self.player is not None or self in (ANYONE, ANONYMOUS) else self.key_id


ANYONE = Identity("-", Role.OPS)  # any caller of a service for which no key was ever made
ANONYMOUS = Identity("anonymous", Role.READER)  # a caller without a key whom the setting `anonymous_role` lets read


def make_api_key(name: str, role: str, now_us: int) -> tuple[StoredKey, str]:
    """Make an API key with a 256-bit secret. Return the record to store, and the key itself, `rk_<id>_<secret>`.

    The key is stored nowhere. It is shown once, to its holder.
    """
    key_id = secrets.token_hex(KEY_ID_BYTES)
    text = f"{KEY_PREFIX}_{key_id}_{secrets.token_hex(SECRET_BYTES)}"
    return StoredKey(key_id, name, role, hash_key(text), now_us, None), text


def key_facts(key: StoredKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "created_at": format_us(key.created_at_us),
        "revoked_at": None if key.revoked_at_us is None else format_us(key.revoked_at_us),
    }


def hash_key(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class KeyRing:
    """Holds the valid API keys in memory, and finds the caller of a request.

        open (no key was ever made: every caller is `ops`) ──first key──> closed (every caller needs a valid key)

    If `anonymous` is set, callers without a key may read while the ring is closed.

    After the first key was made, the ring never opens again, even if the last key is revoked or the store no longer has
    any keys.
    """

    def __init__(
        self, rows: Iterable[StoredKey] = (), *, anonymous: bool = False, tokens: PlayerTokens | None = None
    ) -> None:
        self._anonymous, self.tokens = anonymous, tokens  # `tokens` is None if player tokens are not configured
        self._identities: dict[str, Identity] = {}
        self._valid_ids: set[str] = set()
        self._sessions: dict[Callable[[], None], Identity] = {}  # function that ends a session -> the session's caller
        self.open = True
        self.replace_keys(rows)

    def replace_keys(self, rows: Iterable[StoredKey]) -> None:
        """Replace the keys in memory by `rows`, and end the sessions of keys that are no longer valid.

        `rows` are all keys of the store, even revoked ones, so that the ring closes even if all are revoked.
        """
        listed = list(rows)
        self._identities = {
            row.hash: Identity(row.id, Role[row.role.upper()]) for row in listed if row.revoked_at_us is None
        }
        self._valid_ids = {identity.key_id for identity in self._identities.values()}
        self.open = self.open and not listed
        self.end_invalid()

    def end_invalid(self) -> None:
        for end in [end for end, identity in self._sessions.items() if self._find_refusal(identity) is not None]:
            end()

    @property
    def valid_count(self) -> int:
        return len(self._valid_ids)

    @contextmanager
    def end_when_revoked(self, identity: Identity, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` if the caller's key is revoked while the `with` block runs. The block sends a long answer.

        Raises ProblemError `unauthorized` if the key was revoked before the block.
        """
        self.check_valid(identity)
        self._sessions[end] = identity
        try:
            yield
        finally:
            del self._sessions[end]

    def check_valid(self, identity: Identity) -> None:
        """Raise ProblemError if the caller's key or token stopped being valid after `identify_caller` accepted it."""
        if (error := self._find_refusal(identity)) is not None:
            raise error

    def _find_refusal(self, identity: Identity) -> ProblemError | None:
        if identity.player is not None and self.tokens is not None:
            return self.tokens.find_refusal(identity.player)
        if identity.key_id in self._valid_ids or identity is ANONYMOUS or (self.open and identity is ANYONE):
            return None
        return make_unauthorized("the API key was revoked while the request arrived")

    def identify_caller(self, authorization: str | None) -> Identity:
        """Identify the caller by the Authorization header, or return ANYONE while the ring is open.

        Raises ProblemError `unauthorized` if the ring is closed and the key is missing or not valid, and an error of
        `PlayerTokens.verify` if the header has a player token.
        """
        if authorization is not None and self.tokens is not None and authorization.count(".") == _DOTS_OF_TOKEN:
            player = self.tokens.verify(_key_text(authorization, TOKEN_CHARS_MAX))
            return Identity(f"player-{self.tokens.hash_owner(player.owner)}", Role.PLAYER, player)
        if self.open:
            return ANYONE
        if authorization is None:
            if self._anonymous:
                return ANONYMOUS
            raise make_unauthorized("the request has no API key; send Authorization: Bearer <key>")
        identity = self._identities.get(hash_key(_key_text(authorization)))
        if identity is None:
            raise make_unauthorized("the API key is unknown or was revoked")
        return identity

    def check_binding(self, host: str) -> None:
        """Raise OpenToOthersError if the ring is open and callers from other machines could reach `host`."""
        if self.open and not is_loopback(host):
            raise OpenToOthersError(host)


def make_forbidden(identity: Identity, role: Role) -> ProblemError:
    """Build the error for a caller whose role is lower than `role`, which the request needs."""
    if identity is ANONYMOUS:
        return make_unauthorized(f"this needs an API key with the role {role.name.lower()}")
    have = identity.role.name.lower()
    return ProblemError("forbidden", f"this needs the role {role.name.lower()}; the API key has {have}")


def is_loopback(host: str) -> bool:
    """Return whether the host is `localhost` or a loopback address. Other names may resolve to any address."""
    bare = host.strip("[]").lower()
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def _key_text(authorization: str, chars_max: int = HEADER_CHARS_MAX) -> str:
    if len(authorization) > chars_max:
        raise make_unauthorized("the Authorization header is too long for a key")
    scheme, _, credentials = authorization.partition(" ")
    credentials = credentials.strip()
    kind = scheme.lower()
    if kind == "bearer":
        return credentials
    if kind == "basic":
        try:
            return base64.b64decode(credentials, validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError) as error:
            raise make_unauthorized("the Basic credentials are not base64 of name:key") from error
    raise make_unauthorized("the Authorization header is neither Bearer nor Basic")


def make_unauthorized(detail: str, code: str = "unauthorized") -> ProblemError:
    """Build the error for a caller that must send a valid API key, or a valid player token."""
    return ProblemError(code, detail, headers=_CHALLENGE)
