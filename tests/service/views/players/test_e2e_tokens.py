"""Test player tokens: what they allow, and what an attacker with a token, or with a public key, gets by them."""

import asyncio
import hmac
import json
import random
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from benchmarks.token_replays import PATHS, create_boards, replay_token
from service.contract.api_keys import Role
from tests.service.closing import close_as_of
from tests.service.every_route import BODIES
from tests.service.http.test_e2e_access import path_of
from tests.service.openapi_checks import ROUTE_TABLE
from tests.service.real_service import WAIT_S, Service, bearer

SECRET, OLD_SECRET = "s" * 32, "t" * 32
SCORE = {"name": "score", "merge": "sum", "min": 0, "max": 10**9}
TIME = {"name": "time", "merge": "min", "best": "low"}
PATH = "/v1/leaderboards/arena/posts"
KEYS = {"ES256": ec.generate_private_key(ec.SECP256R1()), "EdDSA": ed25519.Ed25519PrivateKey.generate()}
RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
STRANGER = ed25519.Ed25519PrivateKey.generate()


def jwk_of(algorithm: str, key: Any) -> dict[str, Any]:
    made: Any = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}[algorithm]
    return {**json.loads(made.to_jwk(key.public_key())), "kid": algorithm}


def public_texts(key: Any) -> list[bytes]:
    """Return forms of a public key that an attacker may use as a secret."""
    public, form = key.public_key(), serialization.PublicFormat.SubjectPublicKeyInfo
    return [public.public_bytes(each, form) for each in (serialization.Encoding.PEM, serialization.Encoding.DER)]


def sign_by_hand(header: dict[str, Any], secret: bytes) -> dict[str, str]:
    """Sign as an attacker does. PyJWT refuses to use a public key as a secret."""
    parts = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims_of())]
    signature = urlsafe_b64encode(hmac.digest(secret, b".".join(parts), "sha256")).rstrip(b"=")
    return bearer(b".".join([*parts, signature]).decode())


def claims_of(**changed: Any) -> dict[str, Any]:
    now_s = int(time.time())
    rights = {"boards": ["arena"], "posts": 2, "limits": {"score": 500}}
    return {"sub": "ada", "iat": now_s, "exp": now_s + 600, "jti": "match-1", "rankcurve": rights} | changed


def sign(claims: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **header: Any) -> dict[str, str]:
    return bearer(jwt.encode(claims, key, algorithm=algorithm, headers=header or None))


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Service]:
    jwks = tmp_path / "keys.json"
    keys = [jwk_of(name, key) for name, key in {**KEYS, "RS256": RSA}.items()]
    jwks.write_text(json.dumps({"keys": keys}))
    settings = {"player_token_keys": [SECRET, OLD_SECRET], "player_token_jwks": str(jwks)}
    async with Service(tmp_path, jobs="none", **settings).running() as made:
        await made.board("arena", SCORE, TIME)
        await made.create_first_key()
        yield made


async def issue(service: Service, **asked: Any) -> dict[str, str]:
    body = {"owner": "ada", "boards": ["arena"], **asked}
    return bearer((await service.must("POST", "/v1/tokens", body))["token"])


async def post(service: Service, token: dict[str, str], path: str = PATH, **body: Any) -> Any:
    """Post with a token. Return the status of the result, or the code of the problem."""
    answer = await service.call("POST", path, {"owner": "ada", "stats": {"score": 5}, **body}, token)
    return answer.body["code"] if answer.status >= 400 else answer.body["results"][0]["status"]


async def test_a_token_allows_its_posts_once_each_for_its_owner_on_its_boards(arena: Service) -> None:
    token = await issue(arena, posts=2, limits={"score": 500, "time": "1.5"})
    await arena.board("other", SCORE)
    found = [await post(arena, token, n=number) for number in (0, 0, 1, 1, 2)]
    assert found == ["applied", "duplicate", "applied", "duplicate", "token_used_up"]
    assert await post(arena, token, stats={"score": 6}) == "post_id_conflict"
    assert await post(arena, token, owner="bob") == "foreign_owner"
    assert await post(arena, token, path="/v1/leaderboards/other/posts") == "foreign_board"
    for field in {"post_id": "mine"}, {"at": "2026-01-01T00:00:00Z"}, {"set": {"score": 1}}:
        assert await post(arena, token, **field) == "forbidden"
    assert await arena.refused("POST", PATH, {"owner": "ada", "stats": {"score": 5}, "n": 0}) == (403, "forbidden")
    assert (await arena.get("/v1/leaderboards/arena/entries/ada"))["stats"]["score"] == 10
    many = [{"owner": "eve", "stats": {"score": 1}, "n": number} for number in (0, 1)]
    answer = await arena.call("POST", PATH, {"posts": many}, await issue(arena, owner="eve", posts=2))
    assert [each["status"] for each in answer.body["results"]] == ["applied", "applied"]


async def test_values_are_limited_on_the_better_side(arena: Service) -> None:
    token = await issue(arena, posts=9, limits={"score": 500, "time": "20"})
    assert await post(arena, token, stats={"score": 501}) == "post_limit"
    assert await post(arena, token, stats={"time": 19}) == "post_limit"
    assert await post(arena, token, stats={"score": -501}) == "post_limit"
    assert await post(arena, token, stats={"score": 500, "time": 20}) == "applied"
    mixed = [{"owner": "ada", "stats": {"score": value}, "n": value} for value in (3, 4)]
    mixed.insert(1, {"owner": "ada", "stats": {"score": 501}, "n": 5})
    answer = await arena.call("POST", PATH, {"posts": mixed}, token)
    assert [each["status"] for each in answer.body["results"]] == ["applied", "rejected", "applied"]
    assert answer.body["results"][1]["error"]["code"] == "post_limit"


async def test_posts_to_families_by_token(arena: Service) -> None:
    await arena.must("PUT", "/v1/families/run", {"columns": [SCORE], "periods": ["week"]})
    token, path = await issue(arena, boards=[], families=["run"], limits={"score": 5}), "/v1/families/run/posts"
    assert await post(arena, token) == "foreign_board"
    assert [await post(arena, token, path) for _ in range(2)] == ["applied", "duplicate"]
    assert await post(arena, await issue(arena, families=["run"], limits={"score": 4}), path) == "post_limit"
    assert await post(arena, await issue(arena), path) == "foreign_board"


async def test_tokens_of_a_login_service_count_and_forged_ones_do_not(arena: Service) -> None:
    for algorithm, key in {**KEYS, "RS256": RSA}.items():
        assert await post(arena, sign(claims_of(jti=algorithm), key, algorithm, kid=algorithm)) == "applied"
        assert await post(arena, sign(claims_of(jti=algorithm), key, algorithm, kid="none such")) == "bad_token"
    assert await post(arena, sign(claims_of(jti="old"), OLD_SECRET)) == "applied"
    unsigned = [sign_by_hand({"alg": name}, b"") for name in ("none", "None", "nOnE", "")]
    confused = [
        sign_by_hand({"alg": name, "kid": kid}, public)
        for kid, key in {**KEYS, "RS256": RSA}.items()
        for public in public_texts(key)
        for name in ("HS256", kid)
    ]
    nested = urlsafe_b64encode(b'{"alg":"HS256","x":' + b"[" * 1_450 + b"]" * 1_450 + b"}").decode()
    foreign = sign(claims_of(), SECRET)["Authorization"].split(".")
    forged = [
        *unsigned, *confused, sign_by_hand({}, b"x"), bearer("a.b.c"), bearer(".."), bearer(f"{nested}.e30.e30"),
        bearer(f"{nested}.e30."), bearer("x" * 5_000 + ".e30.e30"), {"Authorization": ".".join([*foreign[:2], ""])},
        sign_by_hand({"alg": "HS256", "kid": 5}, SECRET.encode()), sign_by_hand({"alg": ["HS256"]}, SECRET.encode()),
        sign(claims_of(jti=5)), sign(claims_of(sub=5)), sign(claims_of(iat="5")), sign(claims_of(exp=[])),
        sign(claims_of(), "u" * 32), sign(claims_of(), STRANGER, "EdDSA"), sign(claims_of(), SECRET * 3, "HS512"),
        sign(claims_of(jti="x" * 65)), sign(claims_of(jti="a b")),
        sign(claims_of(sub="")), sign(claims_of(sub="x" * 5_000)),
        sign(claims_of(exp=int(time.time()) + 10**9)), sign(claims_of(exp=10**300)), sign(claims_of(rankcurve=[])),
        sign(claims_of(rankcurve={"posts": 10**6})), sign(claims_of(rankcurve={"posts": 0})),
        sign(claims_of(rankcurve={"limits": {"score": "NaN"}})), sign(claims_of(rankcurve={"role": "ops"})),
        *(sign({name: claim for name, claim in claims_of().items() if name != each}) for each in ("exp", "iat", "jti")),
    ]  # fmt: skip
    for token in forged:
        answer = await arena.call("POST", PATH, {"owner": "ada", "stats": {"score": 5}}, token)
        assert (answer.status, answer.body["code"]) in ((401, "bad_token"), (401, "unauthorized")), token
        assert "WWW-Authenticate" in answer.headers
    for times in {"exp": int(time.time()) - 60}, {"nbf": int(time.time()) + 60}, {"iat": int(time.time()) + 60}:
        assert await post(arena, sign(claims_of(**times))) == "token_expired"


async def test_claims_may_be_huge(arena: Service) -> None:
    many = [*(f"board-{number}" for number in range(150)), "arena"]
    for number, limit in enumerate(("1e999999", 10**300, "500")):
        rights = {"boards": many, "posts": 1_000, "limits": {"score": limit, "none": 1}}
        token = sign(claims_of(jti=f"~._-{number}" + "x" * 58, rankcurve=rights))
        assert await post(arena, token, n=999) == "applied"
        assert await post(arena, token, n=10**18) == "token_used_up"
    rights = {"boards": ["arena"], "limits": {"score": "-1e999999"}}
    assert await post(arena, sign(claims_of(jti="low", rankcurve=rights))) == "post_limit"


async def test_a_players_role_is_the_readers_and_a_few_own_requests(arena: Service) -> None:
    token, owner_free = await issue(arena), {"post", "post_to_family", "post_to_league", "join", "claim_grant"}
    for route in ROUTE_TABLE:
        if route.role is None:
            continue
        answer = await arena.call(route.method, path_of(route), BODIES.get(route.view), token)
        code = answer.body.get("code") if isinstance(answer.body, dict) else None
        if route.view in owner_free:
            assert route.role is Role.PLAYER
            assert answer.status in (403, 404), f"{route.view}: another owner, or another board"
        elif route.role is Role.READER:
            assert answer.status not in (401, 403), route.view
        else:
            assert (answer.status, code) == (403, "forbidden"), route.view


async def test_players_join_and_claim_for_themselves(arena: Service) -> None:
    rewards = [{"name": "gold", "column": "score", "to_rank": 2}]
    closing = {"closes_at": "2040-01-01T00:00:00Z", "grace_seconds": 0}
    await arena.board("cup", SCORE, entry={"join": True}, rewards=rewards, **closing)
    ada, bob = [await issue(arena, owner=owner, boards=["cup"]) for owner in ("ada", "bob")]
    joining = "/v1/leaderboards/cup/entries"
    for owner, token in (("ada", ada), ("bob", bob)):
        assert (await arena.call("POST", joining, {"owner": owner}, token)).status == 201
        assert await post(arena, token, path="/v1/leaderboards/cup/posts", owner=owner) == "applied"
    assert await arena.refused("POST", joining, {"owner": "eve"}, **ada) == (403, "foreign_owner")
    await close_as_of(arena, datetime(2040, 1, 1, tzinfo=UTC))
    grants = (await arena.get("/v1/owners/ada/grants"))["grants"]
    path = f"/v1/grants/{grants[0]['id']}/claim"
    assert await arena.refused("POST", path, **bob) == (403, "foreign_owner")
    assert (await arena.call("POST", path, None, ada)).body["first"] is True


async def test_voided_tokens_are_refused_everywhere_and_later_ones_are_not(arena: Service) -> None:
    token, other = await issue(arena), await issue(arena, owner="bob")
    foreign = sign(claims_of(jti="foreign"))
    await arena.must("DELETE", "/v1/owners/ada/tokens?reason=cheater")
    for earlier in token, foreign:
        assert await post(arena, earlier) == "token_voided"
        assert await arena.refused("GET", "/v1/leaderboards/arena/entries/ada", **earlier) == (401, "token_voided")
    assert await post(arena, other, owner="bob") == "applied"
    assert await post(arena, await issue(arena)) == "applied"
    [act] = (await arena.get("/v1/acts?owner=ada"))["acts"]
    assert (act["act"], act["reason"]) == ("tokens.voided", "cheater")
    await arena.restart()
    assert await post(arena, token) == "token_voided"


async def test_parallel_replays_of_a_token_apply_its_posts_once(tmp_path: Path, either_store: dict[str, Any]) -> None:
    """Run a short form of `benchmarks.token_replays`."""
    async with Service(tmp_path, player_token_keys=[SECRET], **either_store).running() as service:
        await create_boards(service)
        for number, path in enumerate(PATHS):
            _, faults = await replay_token([service], f"p{number}", path, random.Random(number), replays=100)
            assert faults == []
        token = await issue(service)
        await service.must("DELETE", "/v1/owners/ada/tokens")
        async with asyncio.timeout(WAIT_S):
            while await post(service, token, stats={"xp": 1}) != "token_voided":  # the other front learns of it later
                pass


async def test_a_stolen_token_brings_at_most_its_posts_and_limits(tmp_path: Path, either_store: dict[str, Any]) -> None:
    """Attack with one token in every way at once, through all processes of the service."""
    rng, number = random.Random(59), iter(range(1_000))
    settings = {"player_token_keys": [SECRET], "player_requests_per_s": 0, **either_store}
    async with Service(tmp_path, **settings).running() as service:
        for board in ("arena", "other"):
            await service.board(board, SCORE)
        await service.must("PUT", "/v1/families/run", {"columns": [SCORE], "periods": ["all", "week"]})
        await service.create_first_key()
        await service.post("arena", {"owner": "bob", "stats": {"score": 7}})
        token = await issue(service, families=["run"], posts=3, limits={"score": 500})
        family = "/v1/families/run/posts"
        paths = [
            PATH,
            family,
            f"{PATH}?mode=queued",
            f"{family}?mode=queued",
            "/v1/leaderboards/other/posts",
            "/v1/posts",
        ]

        def draw_post() -> dict[str, Any]:
            post = {"owner": rng.choice(["ada", "ada", "ada", "bob"]), "n": rng.randrange(4)}
            post["stats"] = {"score": rng.choice([1, 499, 500, 500, 501, 10**8])}
            wrong = {"post_id": f"x{next(number)}", "at": "2026-01-01T00:00:00Z", "set": {"score": 500}, "n": -1}
            return post | dict([rng.choice([*wrong.items(), *[("n", post["n"])] * 8])])

        async def attack() -> int:
            path, posts = rng.choice(paths), [draw_post() for _ in range(rng.choice([1, 1, 2, 5]))]
            for post in posts if path == "/v1/posts" else ():
                post["boards"] = ["arena"]
            body = posts[0] if len(posts) == 1 else {"posts": posts}
            return (await service.call("POST", path, body, token)).status

        statuses = Counter(await asyncio.gather(*(attack() for _ in range(300))))
        assert statuses.keys() <= {200, 202, 400, 403, 409, 422}, statuses
        assert min(statuses[200], statuses[202], statuses[403]) > 0
        # Now each number has been used, so what still waits in the queue can bring nothing more.
        for path in (PATH, family):
            used = [await post(service, token, path, stats={"score": 1}, n=each) for each in range(3)]
            assert {*used} <= {"applied", "duplicate", "post_id_conflict"}
        journal = await service.get("/v1/journal?after=0&limit=1000")
        lines = [line for line in journal if line["owner"] == "ada" and "error" not in line]
        brought = Counter(line["board"] for line in lines)
        assert brought.keys() > {"arena", "run:all"}
        assert {*brought.values()} == {3}
        assert all(line["stats"]["score"] <= 500 for line in lines)
        for board in brought:
            assert (await service.get(f"/v1/leaderboards/{board}/entries/ada"))["stats"]["score"] <= 3 * 500
        assert (await service.get("/v1/leaderboards/arena/entries/bob"))["stats"]["score"] == 7
        assert (await service.get("/v1/leaderboards/other"))["entries"] == 0
        assert (await service.get("/v1/leaderboards/arena"))["entries"] == 2


async def test_faulty_requests_for_tokens_are_refused(arena: Service) -> None:
    for wrong in (
        {"posts": 0},
        {"posts": 1_001},
        {"expires_in": 86_401},
        {"limits": {"score": "NaN"}},
        {"limits": {"": 1}},
        {"more": 1},
    ):
        assert (await arena.refused("POST", "/v1/tokens", {"owner": "ada", **wrong}))[0] in (400, 422), wrong
    many = [f"board-{number}" for number in range(1_000)]
    assert await arena.refused("POST", "/v1/tokens", {"owner": "ada", "boards": many}) == (400, "bad_request")


async def test_tokens_need_a_key(service: Service) -> None:
    assert await service.refused("POST", "/v1/tokens", {"owner": "ada"}) == (422, "unsupported")
    assert await service.refused("DELETE", "/v1/owners/ada/tokens") == (422, "unsupported")


async def test_each_player_has_a_rate(tmp_path: Path) -> None:
    settings = {"player_token_keys": [SECRET], "player_requests_per_s": 0.001, "player_requests_burst": 2}
    async with Service(tmp_path, **settings).running() as service:
        await service.board("arena", SCORE)
        found = [await post(service, await issue(service)) for _ in range(3)]
        assert found == ["applied", "applied", "rate_limited"]
        assert await post(service, await issue(service, owner="bob"), owner="bob") == "applied"
