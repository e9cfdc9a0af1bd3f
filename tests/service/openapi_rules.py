"""Rules by which the service refuses some requests that its OpenAPI document allows. No schema can express these rules.

Schemathesis loads this module as its hooks. The module changes two of its checks. In the first check, the service may
refuse a valid request by a rule of `RULES`. In the second check, an answer that rejects one post of a list counts as a
refusal.
"""

import json
import re
from typing import Any, NamedTuple
from zlib import crc32

import schemathesis
from schemathesis.checks import CHECKS, load_all_checks

from tests.service.openapi_store import NAMED

load_all_checks()
_accepts_valid: Any = CHECKS.get_one("positive_data_acceptance")
_rejects_invalid: Any = CHECKS.get_one("negative_data_rejection")
for _check in (_accepts_valid, _rejects_invalid):
    CHECKS.unregister(_check.__name__)


class Rule(NamedTuple):
    """A permission to refuse requests that the schema allows: for which operations, and with which code and fault."""

    operations: str  # pattern for the names of the operations
    code: str  # pattern for the code of the problem
    fault: str  # pattern for the start of the text `pointer: detail` of the problem's first fault
    reason: str


_POSTING = "post|post_to_boards|post_to_family|post_to_league"
_SPECS = "create_board|create_family|create_league"
_FACETED = "family_board|facet_values|history"
RULES = (
    Rule(".*", "bad_request", ".* is not a leaderboard id", "no pattern tells which letters and digits a script has"),
    Rule(".*", "bad_cursor", "", "a cursor is signed: none can be made up"),
    Rule(".*", "bad_request", ".*: Expected `int.*`, got `float`", "to JSON Schema 2.0 is an integer; here it is `2`"),
    Rule(_POSTING, "bad_request", "(/posts/[0-9]+)?/stats:", "`stats` and `set` are never both empty"),
    Rule(_POSTING, "bad_request", "(/posts/[0-9]+)?/set/", "a column is never in both `stats` and `set`"),
    Rule(_POSTING, "at_in_future", "", "a post's time is compared with the clock"),
    Rule(_POSTING, "unknown_column|unknown_facet", "", "columns and facets are the leaderboard's"),
    Rule(_POSTING, "bad_value|value_out_of_range", "", "scale and range of a value are the column's"),
    Rule(_SPECS, "bad_spec", "", "parts of a specification depend on each other"),
    Rule(_SPECS, "bad_value|value_out_of_range", "/columns/", "`min` and `max` fit the column's scale"),
    Rule(
        _FACETED, "bad_request", ".* cannot be the value of a facet", "schemathesis makes up parameters beside a schema"
    ),
    Rule(
        "facet_values", "bad_request", ".*: the facet to list cannot have a value", "a facet is listed or has a value"
    ),
    Rule("history", "bad_request", "period:", "the period all never closes"),
    Rule("value_positions|value_around", "bad_value|value_out_of_range", "", "scale and range are the column's"),
    Rule("value_positions", "bad_request", "with/", "no leaderboard is counted twice"),
    Rule("value_positions", "too_many_values", "values:", "values times leaderboards are bounded"),
    Rule("page|top", "bad_request", "from_rank:", "a page starts at a cursor or at a rank"),
    Rule("page|top", "bad_request", "tier:", "a tier has pages by cursor only"),
    Rule("page|top", "bad_request", "order:", "a page in the order of owners starts at a cursor, not at a rank"),
    Rule(".*", "column_needed", "column:", "a leaderboard with several ranked columns has to be told which"),
    Rule("values", "bad_request|too_many_values", "ranks:", "ranks or percentiles are needed, and bounded together"),
    Rule("stream", "bad_request", "owner:", "a stream has the top or an owner"),
    Rule("positions", "bad_request", "compare:", "only a family's leaderboard has a period before"),
    Rule(
        "post|post_to_family|post_to_league", "bad_request", "moved:|positions:", "queued posts have no positions yet"
    ),
    Rule("erase_entries", "bad_request|bad_value|value_out_of_range", "", "it has exactly one of its members"),
    Rule("put_webhook", "bad_value", "/url:", "no schema tells which hosts are public"),
    Rule("issue_token", "bad_value", "/(posts|expires_in):", "settings bound them"),
    Rule("issue_token", "bad_request", ": the token would be too long", "no schema bounds the length of a token"),
    Rule("ask_lease", "bad_request", "/lease_expires:", "exactly one of `lease_expires` and `lease_seconds`"),
    Rule("ask_lease", "bad_value", "(/lease_expires)?:", "the end of a lease is compared with the clock"),
)


@schemathesis.check
def positive_data_acceptance(ctx: Any, response: Any, case: Any) -> bool | None:
    """Fail if the service refuses a valid request, unless a rule of `RULES` permits the refusal."""
    problem = _json_of(response) if response.status_code in (400, 422) else None
    name = case.operation.definition.raw.get("operationId")
    if problem and any(_is_by(rule, name, problem) for rule in RULES):
        return None
    outcome: bool | None = _accepts_valid(ctx, response, case)
    return outcome


@schemathesis.check
def negative_data_rejection(ctx: Any, response: Any, case: Any) -> bool | None:
    """Fail if the service accepts an invalid request without rejecting any post in it."""
    answer = _json_of(response) if response.status_code == 200 else None
    results = answer.get("results", ()) if isinstance(answer, dict) else ()
    if any(result["status"] == "rejected" for result in results):
        return None
    outcome: bool | None = _rejects_invalid(ctx, response, case)
    return outcome


def _is_by(rule: Rule, name: str, problem: dict[str, Any]) -> bool:
    first = problem["errors"][0] if problem["errors"] else {"pointer": "", "detail": problem["detail"]}
    fault = f"{first['pointer']}: {first['detail']}"
    named = re.fullmatch(rule.operations, name) and re.fullmatch(rule.code, problem["code"])
    return bool(named and re.match(rule.fault, fault, re.DOTALL))


def _json_of(response: Any) -> Any:
    try:
        return json.loads(response.content)
    except ValueError:
        return None


@schemathesis.serializer("application/x-ndjson")
def one_line(ctx: Any, value: Any) -> bytes:
    return json.dumps(value).encode()


# These operations would change the existing things that `NAMED` lists.
_KEPT = ("create_board", "create_family", "create_league", "put_pool", "reset_board", "hide_owner")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Put names of existing things into every second valid request, because random names hardly ever exist.

    Requests that would delete or change the things in `NAMED` get other names. No request creates an API key for an
    operator: after that, a service that started without keys would require a key from every caller.
    """
    meta, name = case.meta, case.operation.definition.raw["operationId"]
    if name == "create_key" and isinstance(case.body, dict) and case.body.get("role") == "ops":
        case.body["role"] = "writer"
    if meta is None or meta.phase.name.value == "stateful":
        return  # Schemathesis itself inserts the names of things that earlier requests made
    if case.method == "DELETE" or name in _KEPT:
        for parameter, value in case.path_parameters.items():
            if value == NAMED.get(parameter):
                case.path_parameters[parameter] = "none"
        return
    if not meta.generation.mode.is_positive:
        return
    drawn = repr((case.path_parameters, case.query, case.body)).encode("utf-8", "surrogatepass")
    if crc32(drawn) % 2:
        return
    for parameters in (case.path_parameters, case.query):
        for name in parameters:
            parameters[name] = NAMED.get(name, parameters[name])
    if "columns" in case.query:
        case.query["columns"] = [NAMED["column"]]
    if "compare" in case.query:
        case.path_parameters["board"] = f"{NAMED['family']}:all"
    _name_in(case.body)


def _name_in(body: Any) -> None:
    """Replace the owners, columns and stats of a body, or of each post in a list, by existing ones."""
    if not isinstance(body, dict):
        return
    posts = body.get("posts")
    for post in posts if isinstance(posts, list) else ():
        _name_in(post)
    for name in ("owner", "column", "client_id", "pool_id", "key"):
        if name in body:
            body[name] = NAMED[name]
    if body.get("owners"):
        body["owners"][0] = NAMED["owner"]
    if body.get("boards"):
        body["boards"] = [NAMED["board"]]
    if body.get("stats"):
        body["stats"] = {NAMED["column"]: 1}
