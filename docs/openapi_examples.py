"""Makes the examples of the OpenAPI document from its schemas.

A member gets the example for its type or its name, if that fits its schema, and otherwise the first value that the
schema names. As a result, all examples are about the same board, owner and pool.
"""

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

_TIME = "2026-11-20T10:00:00.000000Z"
_POSITION = {"rank": 12345, "low": 12301, "high": 12390, "exact": False, "total": 343000, "percentile": 96.401}
# By the name of a member or parameter; the first value that has one of the types of the schema is taken.
_BY_NAME: Mapping[str, tuple[Any, ...]] = {
    **{name: (value,) for name, value in _POSITION.items()},
    "board": ("game",),
    "boards": (3,),
    "client_id": ("lobby",),
    "code": ("unknown_owner",),
    "cohort": ("silver-12", 30),
    "column": ("xp",),
    "cursor": ("AbCdEf",),
    "detail": ("'ada' has no entry in 'game'",),
    "entries": (343000,),
    "event": ("position",),
    "facet": ("clan",),
    "family": ("arena",),
    "file": ("dashboard.js",),
    "from": (0,),
    "grant": ("17-3",),
    "id": ("game",),
    "into": ("bob",),
    "key": ("match-17",),
    "kind": ("post",),
    "league": ("climb",),
    "limit": (10,),
    "low": (12301,),
    "max": (1000000,),
    "method": ("curve",),
    "min": (0,),
    "name": ("xp",),
    "next": (None,),
    "operation": ("version",),
    "owner": ("ada",),
    "partition": (0,),
    "period": ("week",),
    "pointer": ("/posts/0/stats/xp",),
    "pool_id": ("servers",),
    "post_id": ("match-17",),
    "prefix": ("ga",),
    "prev": (None,),
    "region": ("eu",),
    "resource": ("10.0.0.7:9000",),
    "samples": (1000,),
    "scale": (0,),
    "seq": (4711,),
    "status": (404, "applied", "ready"),
    "time_zone": ("Europe/Berlin",),
    "title": ("No entry for this owner",),
    "to": (1000,),
    "type": ("number", "urn:rankcurve:problem:unknown_owner"),
    "value": (600, "600"),
    "version": (1,),
    "webhook": ("shop",),
}
_ITEMS: Mapping[str, tuple[Any, ...]] = {
    "boards": ("game",), "columns": ("xp",), "facets": ("clan",), "owners": ("ada", "bob"), "percentiles": (50, 99),
    "periods": ("all", "week", "day"), "ranks": (1, 100), "resources": ("10.0.0.7:9000", "10.0.0.8:9000"),
    "values": ("600", "700"), "with": ("game-2",), "missing": ("eve",),
}  # fmt: skip
_MEMBERS: Mapping[str, dict[str, Any]] = {  # of objects whose members have no names of their own
    "facets": {"clan": "fox"},
    "keep": {"day": 30},
    "profile": {"name": "Ada"},
    "stats": {"xp": 600},
    "stored": {},
}
_KNOTS = [{"value": 9120, "rank": 1, "ties": 1}, {"value": 600, "rank": 12345, "ties": 28}]
_BY_TYPE: Mapping[str, dict[str, Any]] = {  # members of the examples of single types
    "EraseEntries": {"column": "xp", "from_rank": 1_001},
    "AskLease": {"lease_seconds": 60},
    "AuditAnswer": {
        "outcome": "compared", "certificate": 0.004, "bound": 0.004, "owners": 100, "mean_error": 0.0008,
        "p99_error": 0.003, "worst_error": 0.0035, "brackets_broken": 0, "certificates_broken": 0, "broken": [],
        "seconds": 0.42,
    },
    "BoardAnswer": {"closed": False, "archived": False},
    "BoardPositions": {"positions": [{
        "column": "xp", "value": 600, "rank": 12345, "low": 12301, "high": 12390, "exact": False, "method": "curve",
        "total": 343000, "percentile": 96.401, "as_of": _TIME, "board": "game",
    }]},
    "ColumnAnswer": {"merge": "sum"},
    "ColumnBody": {"merge": "sum"},
    "CreatedKey": {"id": "3f9a0c71de", "name": "operator", "role": "ops", "revoked_at": None,
                   "key": "rk_3f9a0c71de_…"},
    "CurveAnswer": {"certificate": 0.004, "knots": _KNOTS, "errors": [0, 3], "method": "skip"},
    "BoardGrants": {"board": "arena:2026-W47", "made": True},
    "ClaimedGrant": {
        "id": "17-3", "board": "arena:2026-W47", "reward": "top", "rank": 3, "data": {"coins": 100},
        "claimed_at": _TIME, "first": True,
    },
    "CohortAnswer": {"period": "2026-W47", "board": "climb:2026-W47", "division": "silver", "settled": False},
    "DivisionAnswer": {"name": "silver", "owners": 51240, "cohorts": 1708},
    "DivisionBody": {"name": "silver", "promote": 7, "relegate": 5},
    "DivisionList": {"period": "2026-W47"},
    "EventLine": {"type": "board.closed", "board": "arena:2026-W47"},
    "ExpectedGrant": {"reward": "top", "rank": 3, "data": {"coins": 100}},
    "FacetValue": {"value": "fox", "board": "arena:2026-W47:clan=fox"},
    "FacetedPostBody": {"stats": {"xp": 25}, "post_id": "match-17", "facets": {"clan": "fox"}},
    "FamilyAnswer": {"id": "arena", "facets": [[], ["clan"]]},
    "FamilyBoardAnswer": {"board": "arena:2026-W47", "previous": "arena:2026-W46", "archived": False},
    "FanPostBody": {"stats": {"xp": 25}, "post_id": "match-17"},
    "LeagueAnswer": {"id": "climb", "ties": "earliest", "period": "week"},
    "LeagueEntry": {"rank": 3, "owner": "ada", "value": 600, "zone": "promotion"},
    "LeagueOwner": {
        "period": "2026-W47", "board": "climb:2026-W47", "division": "silver", "seats": 30, "position": 3,
        "zone": "promotion", "waiting": False,
    },
    "LeaguePast": {
        "period": "2026-W46", "board": "climb:2026-W46", "division": "bronze", "cohort": "bronze-7", "seats": 30,
        "rank": 2, "outcome": "promoted",
    },
    "LeaguePostBody": {"stats": {"xp": 25}, "post_id": "match-17"},
    "PutLeague": {
        "columns": [{"name": "xp", "merge": "sum"}], "column": "xp", "period": "week", "cohort": 30,
        "divisions": [{"name": "bronze", "promote": 10}, {"name": "silver", "relegate": 5}],
    },
    "GrantAnswer": {
        "id": "17-3", "board": "arena:2026-W47", "reward": "top", "rank": 3, "data": {"coins": 100}, "claimed_at": None,
    },
    "Health": {"status": "ok"},
    "IssueToken": {"boards": ["game"], "posts": 1, "expires_in": 900, "limits": {"xp": 500}},
    "IssuedToken": {"token": "eyJhbGci….eyJzdWIi….q3f…", "id": "3FF2flrViYBJcSsK", "expires_at": _TIME},
    "JolokiaAnswer": {"status": 200, "timestamp": 1763632800, "request": {"type": "version"}},
    "KeyAnswer": {"id": "3f9a0c71de", "name": "match server", "role": "writer", "revoked_at": None},
    "LeaseAnswer": {"expires_in": 60},
    "LeaseEventLine": {"kind": "acquired"},
    "Lookup": {"column": "xp"},
    "PastPosition": {"board": "arena:2026-W46"},
    "PeriodAnswer": {"name": "week", "starts_at": "2026-11-15T23:00:00.000000Z",
                     "ends_at": "2026-11-22T23:00:00.000000Z", "closed": False},
    "PostBody": {"stats": {"xp": 25}, "post_id": "match-17"},
    "PostKey": {"name": "operator", "role": "ops"},
    "PostResult": {"updated_at": _TIME, "stats": {"xp": 600}},
    "PredictorSpec": {"exact_top": 1000, "refresh_seconds": 300},
    "ProfileBody": {"name": "Ada"},
    "PutFamily": {"periods": ["all", "week", "day"], "facets": [[], ["clan"]]},
    "PutWebhook": {"url": "https://game.example/events", "events": ["board.closed"], "boards": ["arena:*"]},
    "QueueAnswer": {"posts": 120, "age_seconds": 0.2, "workers": 1, "capacity": 500000, "speed": 12000},
    "RankValue": {"rank": 12345},
    "RankedEntry": {"rank": 1, "exact": True, "value": 600},
    "Readiness": {"status": "ok"},
    "RefreshAnswer": {"certificate": 0.004, "seconds": 0.04, "method": "skip"},
    "ShardAnswer": {"shard": 0, "posts": 120, "age_seconds": 0.2, "applied": 9000, "worker": "node-1"},
    "WebhookAnswer": {
        "id": "shop", "url": "https://game.example/events", "events": ["board.closed"], "boards": ["arena:*"],
        "state": "active", "delivered": 4711, "failures": 0, "failing_since": None, "next_attempt": None,
        "last_error": None,
    },
    "VoidedBoard": {"board": "game", "status": "recomputed", "stats": {"xp": 575}},
    "StreamEvent": {"id": "4711", "data": '{"rank": 12345, "low": 12301, "high": 12390, "exact": false}'},
}  # fmt: skip
# Optional parameters that the example request of an operation has, by its id.
SHOWN_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "history": ("facets",),
    "family_board": ("facets",),
    "page": ("limit",),
    "top": ("limit",),
    "values": ("ranks",),
    "post_state": ("owner",),
}
FOREIGN_REQUEST = {"type": "version"}  # the example of a body whose form another protocol (Jolokia's) defines
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None),
}  # fmt: skip
_DEPTH_MAX = 12


def make_example(schema: Schema, schemas: Mapping[str, Schema], name: str = "", depth: int = 0) -> Any:
    """Return a value that the schema allows.

    `schemas` holds the components by name, and `name` is the member's name.
    """
    if "$ref" in schema:
        kind = schema["$ref"].rpartition("/")[2]
        example = make_example(schemas[kind], schemas, name, depth)
        return {**example, **_BY_TYPE[kind]} if kind in _BY_TYPE else example
    if "const" in schema:
        return schema["const"]
    if "oneOf" in schema or "anyOf" in schema:
        return _example_of_choices(schema.get("oneOf") or schema["anyOf"], schemas, name, depth)
    if "enum" in schema:
        named = _BY_NAME.get(name, ())
        return next((each for each in named if each in schema["enum"]), schema["enum"][0])
    kinds = schema.get("type", "object")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "object" in kinds:
        return _example_of_object(schema, schemas, name, depth)
    if "array" in kinds:
        return _example_of_array(schema, schemas, name, depth)
    return _example_of_scalar(schema, kinds, name)


def _example_of_choices(choices: list[Schema], schemas: Mapping[str, Schema], name: str, depth: int) -> Any:
    if {"type": "null"} in choices and (depth > _DEPTH_MAX or None in _BY_NAME.get(name, ())):
        return None
    return make_example(choices[0], schemas, name, depth)


def _example_of_object(schema: Schema, schemas: Mapping[str, Schema], name: str, depth: int) -> Any:
    if "properties" not in schema:
        if name in _MEMBERS:
            return _MEMBERS[name]
        further = schema.get("additionalProperties")
        return {"xp": make_example(further, schemas, "", depth + 1)} if isinstance(further, dict) else {}
    required = schema.get("required", ())
    return {
        each: make_example(member, schemas, each, depth + 1)
        for each, member in schema["properties"].items()
        if each in required
    }


def _example_of_array(schema: Schema, schemas: Mapping[str, Schema], name: str, depth: int) -> list[Any]:
    if "prefixItems" in schema:
        return [make_example(each, schemas, "", depth + 1) for each in schema["prefixItems"]]
    items = schema.get("items", {})
    if items.get("type") in ("string", "integer", "number") and name in _ITEMS:
        return list(_ITEMS[name])
    return [make_example(items, schemas, "" if name in ("boards", "facets") else name, depth + 1)]


def _example_of_scalar(schema: Schema, kinds: list[str], name: str) -> Any:
    if schema.get("format") == "date-time":
        return _TIME
    for each in _BY_NAME.get(name, ()):
        for kind in kinds:
            if isinstance(each, _KINDS[kind]) and isinstance(each, bool) is (kind == "boolean"):
                return each
    if "default" in schema:
        return schema["default"]
    least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    return {"string": "text", "integer": least or 1, "number": least or 1, "boolean": True, "null": None}[kinds[0]]
