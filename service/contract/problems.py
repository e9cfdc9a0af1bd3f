"""The errors that a caller can see, and one table with the status and the title of each error code.

    ServiceError
    └── ProblemError         answered as application/problem+json (RFC 9457)

Clients branch on codes, so `CODES` is part of the contract with them: a code and its status never change, and a new
kind of error gets a new code.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from jobs import errors as job_errors
from storage import errors as storage_errors

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"


class ProblemCode(NamedTuple):
    """The HTTP status and the title of an error code. `docs/problem_advice.py` tells callers what to do about it.

    If `retried` is set, the same request may succeed later, and the answer has the header `Retry-After`.
    """

    status: int
    title: str
    retried: bool = False


# The answer to a list of posts has the HTTP status 200, even if a post was rejected. The status of the post's error
# then appears only in the body.
CODES: dict[str, ProblemCode] = {
    "bad_json": ProblemCode(400, "Body is not UTF-8 JSON"),
    "bad_request": ProblemCode(400, "Malformed request"),
    "unknown_field": ProblemCode(400, "Unknown field"),
    "duplicate_field": ProblemCode(400, "Field given twice"),
    "column_needed": ProblemCode(400, "Name one of the ranked columns"),
    "bad_cursor": ProblemCode(400, "Cursor from another ranking or list"),
    "too_many_posts": ProblemCode(400, "Too many posts in one request"),
    "too_many_boards": ProblemCode(400, "Too many leaderboards in one request"),
    "too_many_entries": ProblemCode(400, "Too many entries for one page"),
    "too_many_owners": ProblemCode(400, "Too many owners in one request"),
    "too_many_values": ProblemCode(400, "Too many values in one query"),
    "too_many_buckets": ProblemCode(400, "Too many buckets in one query"),
    "too_many_resources": ProblemCode(400, "Too many resources in one request"),
    "unauthorized": ProblemCode(401, "API key required"),
    "bad_token": ProblemCode(401, "Invalid player token"),
    "token_expired": ProblemCode(401, "Player token expired or not yet valid"),
    "token_voided": ProblemCode(401, "Player token voided"),
    "foreign_owner": ProblemCode(403, "Player token of another owner"),
    "foreign_board": ProblemCode(403, "Player token does not cover this leaderboard"),
    "token_used_up": ProblemCode(403, "No posts left on the player token"),
    "forbidden": ProblemCode(403, "Not allowed for this API key's role"),
    "host_not_allowed": ProblemCode(403, "Host must be a loopback name while there are no API keys"),
    "not_found": ProblemCode(404, "No such path"),
    "unknown_board": ProblemCode(404, "No such leaderboard"),
    "unknown_column": ProblemCode(404, "No such ranked column"),
    "unknown_tier": ProblemCode(404, "No such tier"),
    "unknown_owner": ProblemCode(404, "No entry for this owner"),
    "unknown_post": ProblemCode(404, "No such post, or no longer remembered"),
    "unknown_key": ProblemCode(404, "No such API key"),
    "unknown_family": ProblemCode(404, "No such family"),
    "unknown_pool": ProblemCode(404, "No such pool"),
    "unknown_region": ProblemCode(404, "No such region in the pool"),
    "unknown_webhook": ProblemCode(404, "No such webhook"),
    "unknown_grant": ProblemCode(404, "No such grant"),
    "unknown_lease": ProblemCode(404, "No lease for this key"),
    "owner_merged": ProblemCode(404, "Owner merged into another one"),
    "not_ranked": ProblemCode(404, "Owner has no value in these columns"),
    "no_profile": ProblemCode(404, "No profile for this owner"),
    "no_curve": ProblemCode(404, "No curve yet"),
    "method_not_allowed": ProblemCode(405, "Method not allowed"),
    "body_timeout": ProblemCode(408, "Body took too long to arrive"),
    "spec_conflict": ProblemCode(409, "Change would reinterpret stored values"),
    "post_id_conflict": ProblemCode(409, "Post id already used for another post"),
    "merge_conflict": ProblemCode(409, "Owners cannot be merged this way"),
    "post_voided": ProblemCode(409, "Post was taken back"),
    "family_board": ProblemCode(409, "Leaderboard belongs to a family"),
    "period_closed": ProblemCode(409, "Leaderboard or period closed"),
    "not_open_yet": ProblemCode(409, "Leaderboard not open yet"),
    "not_open": ProblemCode(409, "Leaderboard not open for joining yet"),
    "no_entry_rules": ProblemCode(409, "Leaderboard needs no joining"),
    "not_joined": ProblemCode(409, "Owner has not joined"),
    "no_posts_left": ProblemCode(409, "Owner has no posts left"),
    "board_full": ProblemCode(409, "Leaderboard full"),
    "verdict_conflict": ProblemCode(409, "Post already accepted or refused"),
    "before_reset": ProblemCode(409, "Post predates the last reset"),
    "no_resource_available": ProblemCode(409, "No free resource in the region"),
    "ops_key_needed": ProblemCode(409, "Last API key with the role ops"),
    "archived": ProblemCode(410, "Not kept in the leaderboard's archive"),
    "catalog_full": ProblemCode(409, "Limit of leaderboards, families, pools or keys reached"),
    "own_tables_full": ProblemCode(409, "Limit of leaderboards with their own tables reached"),
    "journal_pruned": ProblemCode(410, "Journal no longer reaches back that far"),
    "body_too_large": ProblemCode(413, "Body too large"),
    "unsupported_media_type": ProblemCode(415, "Unsupported media type"),
    "bad_value": ProblemCode(422, "Invalid value"),
    "column_computed": ProblemCode(422, "Column is computed"),
    "value_out_of_range": ProblemCode(422, "Value out of the column's range"),
    "post_limit": ProblemCode(422, "Post exceeds a limit"),
    "bad_rank": ProblemCode(422, "Ranks start at 1"),
    "bad_spec": ProblemCode(422, "Contradictory specification"),
    "unknown_facet": ProblemCode(422, "No such facet"),
    "post_rejected": ProblemCode(422, "Rejected with another part of the post"),
    "at_in_future": ProblemCode(422, "Time of the post too far in the future"),
    "unsupported": ProblemCode(422, "Not supported in this version"),
    "queue_full": ProblemCode(429, "Too many posts waiting", retried=True),
    "rate_limited": ProblemCode(429, "Rate limit exceeded", retried=True),
    "internal": ProblemCode(500, "Internal error"),
    "store_damaged": ProblemCode(500, "Store file damaged"),
    "store_busy": ProblemCode(503, "Store overloaded", retried=True),
    "partition_away": ProblemCode(503, "Database server not responding", retried=True),
    "store_read_only": ProblemCode(503, "Read-only while the store is being copied", retried=True),
    "too_many_bodies": ProblemCode(503, "Too many bodies arriving at once", retried=True),
    "no_job_process": ProblemCode(503, "No job process running"),
    "timeout": ProblemCode(503, "Answer took too long", retried=True),
    "store_full": ProblemCode(507, "Disk full"),
}  # fmt: skip

# Error class of storage or jobs -> its error code. A class that is missing has the code of its nearest base class.
# Most codes are made from the name of the class: `UnknownBoardError` has `unknown_board`. The other codes are listed.
STORAGE_CODES: dict[type[BaseException], str] = {
    kind: code
    for name, kind in [*vars(storage_errors).items(), *vars(job_errors).items()]
    if (code := re.sub("(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Error")).lower()) in CODES
} | {
    storage_errors.JournalIncompleteError: "journal_pruned",
    storage_errors.LeaseInPastError: "bad_value",
    storage_errors.LostRaceError: "store_busy",
    storage_errors.NoResourceError: "no_resource_available",
    storage_errors.PostError: "post_rejected",
    storage_errors.SpecInvalidError: "bad_spec",
    storage_errors.WaitTooLongError: "timeout",
    TimeoutError: "timeout",
}

# Codes that have another status than in `CODES` if a post is rejected or can't be taken back. A post names its columns
# in the body, and not in the path; and the post that can't be taken back is still there.
POST_STATUSES = {"unknown_column": 422, "journal_pruned": 409}

TYPE_PREFIX = "urn:rankcurve:problem:"
SHOWN_CHARS_MAX = 80


class FieldError(msgspec.Struct, frozen=True):
    """One fault of a request. `pointer` says where: a JSON pointer into the body, or the name of a parameter."""

    pointer: str
    detail: str


class ProblemDocument(msgspec.Struct, frozen=True):
    """The body of every 4xx and 5xx answer, and the `error` of a rejected post (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldError] = []
    into: str | UnsetType = UNSET
    """The owner who has the entries, if the problem is that the owner of the request was merged."""


class ServiceError(Exception):
    """The base class of every error that the service package raises."""


class ProblemError(ServiceError):
    """An error with a stable `code`. If a handler raises it, the service answers with the error's problem document.

    `status` overrides the status in `CODES`. `headers` are added to the answer. A retry may succeed after
    `retry_after_s` seconds; 0 means that the time is not known.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        pointer: str | None = None,
        errors: Sequence[FieldError] = (),
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after_s: float = 0,
        into: str | UnsetType = UNSET,
    ) -> None:
        super().__init__(code, detail)
        self.into = into
        self.code = code
        self.detail = detail
        self.errors = list(errors) if pointer is None else [FieldError(pointer, detail), *errors]
        self.status = CODES[code].status if status is None else status
        self.headers = dict(headers or {})
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"

    def to_document(self) -> ProblemDocument:
        title = CODES[self.code].title
        return ProblemDocument(
            TYPE_PREFIX + self.code, title, self.status, self.detail, self.code, self.errors, self.into
        )

    def to_json(self) -> bytes:
        return msgspec.json.encode(self.to_document())


def problem_of(error: BaseException) -> ProblemError:
    """Turn an error into a ProblemError, by its class and the table `STORAGE_CODES`. Return a ProblemError unchanged.

    If the table has neither the error's class nor a base class of it, the error is a bug: return `internal_problem()`.
    """
    if isinstance(error, ProblemError):
        return error
    for kind in type(error).__mro__:
        code = STORAGE_CODES.get(kind)
        if code is not None:
            pointer, into = getattr(error, "pointer", None), getattr(error, "into", None) or UNSET
            return ProblemError(code, str(error) or CODES[code].title, pointer=pointer, into=into)
    return internal_problem()


def internal_problem() -> ProblemError:
    """Build the problem for a bug. Its text does not name the cause, but says how to find the cause in the log."""
    return ProblemError("internal", "the request failed; its id is in the X-Request-Id header and in the service's log")


def post_problem_of(error: BaseException) -> ProblemError:
    """Build the problem of a post that is rejected or not taken back. Its status is in `POST_STATUSES` or `CODES`."""
    problem = problem_of(error)
    problem.status = POST_STATUSES.get(problem.code, problem.status)
    return problem


def check_count(count: int, most: int, code: str, pointer: str, what: str = "values") -> None:
    """Raise ProblemError `code` if `count` is more than `most`. `what` names the counted things."""
    if count > most:
        raise ProblemError(code, f"{count} {what} are more than {most}", pointer=pointer)


def name_post(problem: ProblemError, index: int | None) -> ProblemError:
    """Add the post's `index` to the pointers of a problem, and `index` + 1 to its detail. None: return it unchanged."""
    if index is None:
        return problem
    errors = [FieldError(f"/posts/{index}{each.pointer}", each.detail) for each in problem.errors]
    errors = errors or [FieldError(f"/posts/{index}", problem.detail)]
    return ProblemError(problem.code, f"post {index + 1}: {problem.detail}", errors=errors, status=problem.status)


def clip_text(text: str) -> str:
    """Shorten a caller's text and make it encodable as UTF-8, so that an error or a log line can quote it."""
    cut = text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"
    return cut.encode("utf-8", "backslashreplace").decode("utf-8")
