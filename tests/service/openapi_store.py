"""Fill a store with one thing of each kind, so that requests from the OpenAPI document can name existing things."""

from tests.service.real_service import Caller

NAMED = {
    "board": "duel", "column": "xp", "family": "arena", "owner": "ann", "post_id": "match-1",
    "league": "climb", "cohort": "bronze-1",
    "client_id": "acme", "pool_id": "servers", "key": "match-1",
}  # fmt: skip
"""The names of existing things, by the parameters of paths and queries that take them."""

_COLUMNS = (
    {"name": "xp", "merge": "max"},
    {"name": "seconds", "merge": "min", "best": "low", "scale": 3},
    {"name": "clan", "sorted": False, "type": "text"},
)
_OWNERS = ("ann", "bob", "cy")
_PERIODS = ("all", "year", "month", "week", "day")


async def fill(caller: Caller) -> None:
    await caller.board("duel", *_COLUMNS)
    columns = [{"sorted": True, "merge": "last", **column} for column in _COLUMNS]
    await caller.must("PUT", "/v1/families/arena", {"columns": columns, "periods": _PERIODS, "facets": [[], ["org"]]})
    posts = [
        {"owner": owner, "stats": {"xp": number, "seconds": "1.5", "clan": "fox"}, "post_id": f"match-{number}"}
        for number, owner in enumerate(_OWNERS, start=1)
    ]
    await caller.post("duel", *posts)
    await caller.must(
        "POST", "/v1/families/arena/posts", {"posts": [{**post, "facets": {"org": "x"}} for post in posts]}
    )
    league = {"columns": columns, "column": "xp", "period": "week", "cohort": 3, "divisions": [{"name": "bronze"}]}
    await caller.must("PUT", "/v1/leagues/climb", league)
    await caller.must("POST", "/v1/leagues/climb/posts", {"posts": [{**post, "division": "bronze"} for post in posts]})
    await caller.refresh("duel", "xp")
    await caller.must("PUT", "/v1/owners/ann/profile", {"name": "Ann"})
    await caller.must("PUT", "/v1/pools/acme/servers")
    await caller.must("POST", "/v1/pools/acme/servers/resources", {"region": "eu", "resources": ["a", "b", "c"]})
    lease = {"client_id": "acme", "pool_id": "servers", "key": "match-1", "region": "eu", "lease_seconds": 600}
    await caller.must("POST", "/v1/leases", lease)
