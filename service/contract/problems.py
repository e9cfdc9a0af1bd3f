"""The errors that a caller can see, and one table with the status and the title of each error code.

    ServiceError
    └── ProblemError         answered as application/problem+json (RFC 9457)

`CODES` is part of the contract with callers. A code and its status never change; a new kind of error gets a new code.
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
    """The HTTP status and the title of an error code. `docs/problem_advice.py` says what a caller should do about it.

    If `retried` is set, the same request may succeed later. The answer then has the header `Retry-After`.
    """

    status: int
    title: str
    retried: bool = False


# The answer to a list of posts has the HTTP status 200, even if a post was rejected. The status of the post's error
# then appears only in the body.
CODES: dict[str, ProblemCode] = {
    "bad_json": ProblemCode(400, "The body is not JSON in UTF-8"),
    "bad_request": ProblemCode(400, "The request does not have the form that the contract demands"),
    "unknown_field": ProblemCode(400, "The contract has no such field"),
    "duplicate_field": ProblemCode(400, "The same field is given twice"),
    "column_needed": ProblemCode(400, "The leaderboard has several ranked columns, of which one has to be named"),
    "bad_cursor": ProblemCode(400, "The cursor does not belong to this ranking or list"),
    "too_many_posts": ProblemCode(400, "More posts than one request may carry"),
    "too_many_boards": ProblemCode(400, "More leaderboards than one request may name"),
    "too_many_entries": ProblemCode(400, "More entries than one page may carry"),
    "too_many_owners": ProblemCode(400, "More owners than one request may name"),
    "too_many_values": ProblemCode(400, "More values than one query may ask for"),
    "too_many_buckets": ProblemCode(400, "More buckets than one query may ask for"),
    "too_many_resources": ProblemCode(400, "More resources than one request may carry"),
    "unauthorized": ProblemCode(401, "An API key is needed"),
    "bad_token": ProblemCode(401, "The player token is not valid"),
    "token_expired": ProblemCode(401, "The player token has expired, or is not valid yet"),
    "token_voided": ProblemCode(401, "All earlier player tokens of the owner are void"),
    "foreign_owner": ProblemCode(403, "The player token was issued for another owner"),
    "foreign_board": ProblemCode(403, "The player token does not name this leaderboard or family"),
    "token_used_up": ProblemCode(403, "The player token does not allow that many posts"),
    "forbidden": ProblemCode(403, "The API key's role does not allow this"),
    "host_not_allowed": ProblemCode(403, "Without API keys only loopback names are accepted in Host"),
    "not_found": ProblemCode(404, "No such path"),
    "unknown_board": ProblemCode(404, "No such leaderboard"),
    "unknown_column": ProblemCode(404, "The leaderboard has no such ranked column"),
    "unknown_tier": ProblemCode(404, "The column has no such tier"),
    "unknown_owner": ProblemCode(404, "The owner has no entry here"),
    "unknown_post": ProblemCode(404, "No such post is remembered"),
    "unknown_key": ProblemCode(404, "No such API key"),
    "unknown_family": ProblemCode(404, "No such family"),
    "unknown_pool": ProblemCode(404, "No such pool of resources"),
    "unknown_region": ProblemCode(404, "The pool never had a resource in this region"),
    "unknown_webhook": ProblemCode(404, "No such webhook"),
    "unknown_grant": ProblemCode(404, "No such grant"),
    "unknown_lease": ProblemCode(404, "The key has no lease in this pool"),
    "owner_merged": ProblemCode(404, "The owner was merged into another one"),
    "not_ranked": ProblemCode(404, "The owner has no value in the columns asked for"),
    "no_profile": ProblemCode(404, "The owner has no profile"),
    "no_curve": ProblemCode(404, "The column has no curve yet"),
    "method_not_allowed": ProblemCode(405, "The path does not take this method"),
    "body_timeout": ProblemCode(408, "The body took too long to arrive"),
    "spec_conflict": ProblemCode(409, "The change would reinterpret stored values"),
    "post_id_conflict": ProblemCode(409, "The post id was used for another post of this owner"),
    "merge_conflict": ProblemCode(409, "The owners can't be merged in this way"),
    "post_voided": ProblemCode(409, "The post with this id was taken back"),
    "family_board": ProblemCode(409, "The leaderboard belongs to a family and changes only with the family"),
    "period_closed": ProblemCode(409, "The leaderboard, or its period, is closed"),
    "not_open_yet": ProblemCode(409, "The leaderboard has not opened yet"),
    "not_open": ProblemCode(409, "The leaderboard has not opened yet, so nobody can join it"),
    "no_entry_rules": ProblemCode(409, "The leaderboard has no entry rules, so nobody needs to join it"),
    "not_joined": ProblemCode(409, "The owner has not joined the leaderboard"),
    "no_posts_left": ProblemCode(409, "The owner has used all posts that the leaderboard takes of an owner"),
    "board_full": ProblemCode(409, "The leaderboard has as many owners as it may have"),
    "verdict_conflict": ProblemCode(409, "The post was accepted or refused before"),
    "before_reset": ProblemCode(409, "The leaderboard was emptied after the time of the post"),
    "no_resource_available": ProblemCode(409, "The region has no resource left"),
    "ops_key_needed": ProblemCode(409, "No API key with the role ops would be left"),
    "archived": ProblemCode(410, "The leaderboard was archived, and its archive does not hold this"),
    "catalog_full": ProblemCode(409, "The service holds as many leaderboards, families, pools or API keys as it may"),
    "own_tables_full": ProblemCode(409, "The store holds as many leaderboards with tables of their own as it may"),
    "journal_pruned": ProblemCode(410, "The journal no longer reaches back that far"),
    "body_too_large": ProblemCode(413, "The body is larger than the service takes"),
    "unsupported_media_type": ProblemCode(415, "The service takes application/json"),
    "bad_value": ProblemCode(422, "The value is not valid here"),
    "column_computed": ProblemCode(422, "The column is computed from others, and can't be posted or set"),
    "value_out_of_range": ProblemCode(422, "The value or the result lies outside the column's range"),
    "post_limit": ProblemCode(422, "The post brings more than it may"),
    "bad_rank": ProblemCode(422, "Ranks start at 1"),
    "bad_spec": ProblemCode(422, "The parts of the leaderboard's specification contradict each other"),
    "unknown_facet": ProblemCode(422, "The family has no such facet"),
    "post_rejected": ProblemCode(422, "A post is all or nothing, and another part of it was refused"),
    "at_in_future": ProblemCode(422, "The post's time lies too far ahead"),
    "unsupported": ProblemCode(422, "This version does not support it"),
    "queue_full": ProblemCode(429, "Too many posts are waiting", retried=True),
    "rate_limited": ProblemCode(429, "The API key sends more than its rate allows", retried=True),
    "internal": ProblemCode(500, "The service failed; its log has the cause under the request id"),
    "store_damaged": ProblemCode(500, "The store's file is damaged"),
    "store_busy": ProblemCode(503, "The store can't keep up", retried=True),
    "partition_away": ProblemCode(503, "The database server that holds this does not answer", retried=True),
    "store_read_only": ProblemCode(503, "The store is being copied to another one, and takes no writes", retried=True),
    "too_many_bodies": ProblemCode(503, "Too many bodies are arriving at once", retried=True),
    "no_job_process": ProblemCode(503, "No job process is alive"),
    "timeout": ProblemCode(503, "The answer took too long", retried=True),
    "store_full": ProblemCode(507, "The store's disk is full"),
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
    """Return a ProblemError unchanged. For another error, return a problem with the error's code in `STORAGE_CODES`.

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
    """Return the problem for a bug. Its text does not name the cause, but says how to find the cause in the log."""
    return ProblemError("internal", "the request failed; its id is in the X-Request-Id header and in the service's log")


def post_problem_of(error: BaseException) -> ProblemError:
    """Return the problem of a post that is rejected or not taken back. Its status is in `POST_STATUSES` or `CODES`."""
    problem = problem_of(error)
    problem.status = POST_STATUSES.get(problem.code, problem.status)
    return problem


def check_count(count: int, most: int, code: str, pointer: str, what: str = "values") -> None:
    """Raise ProblemError `code` if `count` is more than `most`. `what` are the things that were counted."""
    if count > most:
        raise ProblemError(code, f"{count} {what} are more than {most}", pointer=pointer)


def name_post(problem: ProblemError, index: int | None) -> ProblemError:
    """Return the problem with the post's `index` in pointers and `index` + 1 in the detail; unchanged if it is None."""
    if index is None:
        return problem
    errors = [FieldError(f"/posts/{index}{each.pointer}", each.detail) for each in problem.errors]
    errors = errors or [FieldError(f"/posts/{index}", problem.detail)]
    return ProblemError(problem.code, f"post {index + 1}: {problem.detail}", errors=errors, status=problem.status)


def clip_text(text: str) -> str:
    """Shorten a caller's text and make it encodable as UTF-8, so that an error or a log line can quote it."""
    cut = text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"
    return cut.encode("utf-8", "backslashreplace").decode("utf-8")
