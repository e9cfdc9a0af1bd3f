"""For every route, the parts of a valid request: the names in its path, its query and its body."""

from typing import Any

NAMES = {
    "board": "b", "owner": "ada", "column": "xp", "family": "f", "client_id": "c", "pool_id": "p", "key": "k",
    "post_id": "once", "operation": "version", "file": "dashboard.js", "webhook": "shop",
    "grant": "17-3", "league": "l", "cohort": "bronze-1",
}  # fmt: skip
KEY = {"name": "operator", "role": "ops"}
POST = {"owner": "ada", "stats": {"xp": 3}}
BODIES: dict[str, Any] = {
    "post": {**POST, "post_id": "once"},
    "post_to_boards": {**POST, "boards": ["b"]},
    "post_to_family": {**POST, "post_id": "once", "facets": {"team": "red"}},
    "create_family": {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}], "periods": ["all", "day"],
                   "facets": [[], ["team"]]},
    "create_league": {"columns": [{"name": "xp", "merge": "sum"}], "column": "xp", "period": "week", "cohort": 3,
                      "divisions": [{"name": "bronze", "promote": 1}, {"name": "silver", "relegate": 1}]},
    "post_to_league": {**POST, "post_id": "once"},
    "issue_token": {"owner": "ada"}, "judge_post": {"verdict": "refuse"},
    "put_webhook": {"url": "https://game.example/events", "events": ["board.closed"], "boards": ["arena:*"]},
    "put_pool": {}, "reset_family": {"period": "day"},
    "add_resources": {"region": "eu", "resources": ["one", "two"]},
    "remove_resources": {"resources": ["two"]},
    "ask_lease": {"client_id": "c", "pool_id": "p", "key": "k", "region": "eu", "lease_seconds": 60},
    "join": {"owner": "ada"}, "erase_entries": {"owners": ["nobody"]},
    "hide_owner": {"shadow": True},
    "lookup": {"owners": ["ada"], "column": "xp"},
    "positions_on_boards": {"boards": ["b"], "column": "xp"},
    "create_board": {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}]},
    "merge_owner": {"into": "bob"}, "put_profile": {"name": "Ada"}, "create_key": KEY,
    "jolokia_post": {"type": "version"}, "jolokia_post_to": {"type": "version"},
}  # fmt: skip
QUERIES = {
    "void_post": "?owner=ada", "void_family_post": "?owner=ada", "judge_post": "?owner=ada",
    "value_positions": "?values=1", "value_around": "?value=1", "values": "?ranks=1",
    "family_board": "?period=all", "facet_values": "?period=all&facet=team",
    "history": "?period=day", "hidden_owners": "?hidden=true",
}  # fmt: skip
