"""Issues and verifies player tokens: JSON Web Tokens with which the programs of players post, join and claim.

    POST /v1/tokens ──> token ──┐
    login service of the game ──┴──> Authorization: Bearer <token> ──> `PlayerTokens.verify` ──> `Player`

A token sits on a player's device, so it must be worth little to a thief. The id of a post by token is made from the
token's `jti` and the post's `n`, so whoever steals a token or replays a request can apply at most `posts` posts to a
board, each with values within the token's limits.

Import this module only where tokens are configured, because PyJWT loads a library for cryptography.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import jwt
import msgspec

from config.settings import Settings

from .api_keys import TOKEN_CHARS_MAX, make_unauthorized
from .players import Player
from .problems import ProblemError, ServiceError
from .values import parse_owner

VERIFIED_MAX = 10_000  # tokens that a process remembers, so that it computes their signatures once
LEEWAY_S = 5  # how far the clock of a login service may be ahead or behind
JTI_BYTES = 12
OWNER_HASH_BYTES = 8
_JTI = re.compile(r"[A-Za-z0-9._~-]{1,64}")
_SHARED_SECRET = "HS256"
_ALGORITHMS = {"OKP": "EdDSA", "EC": "ES256", "RSA": "RS256"}  # by type of a public key
_OPTIONS: Any = {"require": ["sub", "exp", "iat", "jti"], "verify_aud": False, "enforce_minimum_key_length": True}


class TokenKeysError(ServiceError):
    """The file of public keys for player tokens cannot be used."""


class _Rights(msgspec.Struct, forbid_unknown_fields=True):
    boards: frozenset[str] = frozenset()
    families: frozenset[str] = frozenset()
    posts: int = 1
    limits: dict[str, Decimal] = {}


class PlayerTokens:
    """Holds the keys of player tokens, and for each owner (by hash) when its earlier tokens became void."""

    def __init__(self, settings: Settings, salt: str, *, now_us: Callable[[], int]) -> None:
        self.voids: Mapping[str, int] = {}
        self._owner_hash = hashlib.blake2b(digest_size=OWNER_HASH_BYTES, key=bytes.fromhex(salt), person=b"token")
        self._now_us = now_us
        self._posts_max = settings.player_token_posts_max
        self.lifetime_us_max = round(min(settings.player_token_s_max, settings.post_id_retention_s) * 1_000_000)
        self._secrets = [each.get_secret_value() for each in settings.player_token_keys]
        self._public = _read_keys(settings.player_token_jwks) if settings.player_token_jwks else []
        self._verified: dict[str, Player] = {}  # by the text of the token, the oldest first

    def hash_owner(self, owner: str) -> str:
        """Hash an owner for logs and for the store, which must not name anybody."""
        owner_hash = self._owner_hash.copy()
        owner_hash.update(owner.encode())
        return owner_hash.hexdigest()

    def issue(self, owner: str, posts: int, rights: Mapping[str, object], *, expires_in_s: int) -> tuple[str, str, int]:
        """Issue a token. Return it with its id and its time of expiry in microseconds since 1970.

        Raises ProblemError `unsupported` if no secret is configured, `bad_value` if the token would live too long or
        allow too many posts, and `bad_request` if it would be too long.
        """
        if not self._secrets:
            raise ProblemError("unsupported", "no secret is set to sign tokens with (player_token_keys)")
        if expires_in_s * 1_000_000 > self.lifetime_us_max:
            raise ProblemError("bad_value", f"at most {self.lifetime_us_max // 1_000_000} s", pointer="/expires_in")
        if posts > self._posts_max:
            raise ProblemError("bad_value", f"at most {self._posts_max} posts", pointer="/posts")
        token_id, now_us = secrets.token_urlsafe(JTI_BYTES), self._now_us()
        expires_s = now_us // 1_000_000 + expires_in_s
        claims = {"sub": owner, "exp": expires_s, "iat": now_us / 1e6, "jti": token_id}
        claims["rankcurve"] = {"posts": posts, **rights}
        text = jwt.encode(claims, self._secrets[0], algorithm=_SHARED_SECRET)
        if len(text) > TOKEN_CHARS_MAX:
            raise ProblemError("bad_request", "the token would be too long; name fewer leaderboards and columns")
        return text, token_id, expires_s * 1_000_000

    def verify(self, text: str) -> Player:
        """Verify a token and return what it allows.

        Raises ProblemError `bad_token`, `token_expired` or `token_voided`.
        """
        player = self._verified.get(text)
        if player is None:
            player = self._decode(text)
            if len(self._verified) >= VERIFIED_MAX:
                del self._verified[next(iter(self._verified))]
            self._verified[text] = player
        if (error := self.find_refusal(player)) is not None:
            raise error
        return player

    def find_refusal(self, player: Player) -> ProblemError | None:
        """Return an error if a token has expired, or was voided, since its signature was verified."""
        if player.expires_us <= self._now_us():
            return make_unauthorized("the token has expired", "token_expired")
        if self.voids and player.issued_us <= self.voids.get(self.hash_owner(player.owner), -1):
            return make_unauthorized("the token was voided", "token_voided")
        return None

    def _decode(self, text: str) -> Player:
        try:
            claims = self._verify_signature(text)
            issued_us, expires_us = round(claims["iat"] * 1_000_000), round(claims["exp"] * 1_000_000)
            rights = msgspec.convert(claims.get("rankcurve", {}), _Rights, strict=False)
            owner = parse_owner(claims["sub"])
        except (jwt.ExpiredSignatureError, jwt.ImmatureSignatureError) as error:
            raise make_unauthorized("the token has expired, or is not valid yet", "token_expired") from error
        except (jwt.PyJWTError, msgspec.ValidationError, ProblemError, TypeError, ValueError, OverflowError) as error:
            raise _refuse("the token is not signed by a known key, or its claims are not valid") from error
        if not _JTI.fullmatch(claims["jti"]) or not all(each.is_finite() for each in rights.limits.values()):
            raise _refuse("the claims of the token are not valid")
        if expires_us - issued_us > self.lifetime_us_max:
            raise _refuse(f"the token is valid for more than {self.lifetime_us_max // 1_000_000} s after its issue")
        if not 0 < rights.posts <= self._posts_max:
            raise _refuse(f"the token allows {rights.posts} posts; it should be 1 to {self._posts_max}")
        return Player(
            owner=owner,
            boards=rights.boards,
            families=rights.families,
            posts=rights.posts,
            limits=rights.limits,
            token_id=claims["jti"],
            issued_us=issued_us,
            expires_us=expires_us,
        )

    def _verify_signature(self, text: str) -> dict[str, Any]:
        """Return the claims of a token.

        A key is tried only with its own algorithm, never with one that the token names.
        """
        header = jwt.get_unverified_header(text)
        named, key_id = str(header.get("alg")), header.get("kid")
        keys: list[Any] = self._secrets if named == _SHARED_SECRET else []
        keys = keys or [
            each.key for each, algorithm in self._public if algorithm == named and key_id in (None, each.key_id)
        ]
        for key in keys:
            try:
                return jwt.decode(text, key, algorithms=[named], options=_OPTIONS, leeway=LEEWAY_S)
            except jwt.InvalidSignatureError:
                continue
        raise jwt.InvalidSignatureError("no key fits")


def _refuse(detail: str) -> ProblemError:
    return make_unauthorized(detail, "bad_token")


def _read_keys(path: str) -> list[tuple[jwt.PyJWK, str]]:
    try:
        documents = json.loads(Path(path).read_text(encoding="utf-8"))["keys"]
        keys = [(jwt.PyJWK(each, algorithm=_ALGORITHMS[each["kty"]]), _ALGORITHMS[each["kty"]]) for each in documents]
    except (OSError, ValueError, KeyError, TypeError, jwt.PyJWTError) as error:
        raise TokenKeysError(f"{path}: should be a JSON Web Key Set with keys for EdDSA, ES256 or RS256") from error
    if not keys:
        raise TokenKeysError(f"{path}: has no keys")
    return keys
