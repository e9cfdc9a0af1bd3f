"""The errors that a caller can see, and one table with the HTTP status and the title of each error code.

    ServiceError
    └── ProblemError         answered as application/problem+json (RFC 9457)

`CODES` is part of the wire contract. A code and its status never change; a new case gets a new code.
"""

from collections.abc import Mapping, Sequence

import msgspec

from jobs import errors as job_errors
from storage import errors as storage_errors

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"

# code -> (HTTP status, title). The answer to a list of posts has the HTTP status 200, even if a post was rejected. The
# status of the post's error then appears only in the body.
CODES: dict[str, tuple[int, str]] = {
    "bad_json": (400, "The body is not JSON in UTF-8"),
    "bad_request": (400, "The request does not have the form that the contract demands"),
    "unknown_field": (400, "The contract has no such field"),
    "duplicate_field": (400, "The same field is given twice"),
    "bad_cursor": (400, "The cursor does not belong to this ranking or list"),
    "too_many_posts": (400, "More posts than one request may carry"),
    "too_many_boards": (400, "More leaderboards than one request may name"),
    "too_many_entries": (400, "More entries than one page may carry"),
    "too_many_owners": (400, "More owners than one request may name"),
    "too_many_values": (400, "More values than one query may ask for"),
    "too_many_buckets": (400, "More buckets than one query may ask for"),
    "too_many_resources": (400, "More resources than one request may carry"),
    "unauthorized": (401, "An API key is needed"),
    "forbidden": (403, "The API key's role does not allow this"),
    "host_not_allowed": (403, "Without API keys only loopback names are accepted in Host"),
    "not_found": (404, "No such path"),
    "unknown_board": (404, "No such leaderboard"),
    "unknown_column": (404, "The leaderboard has no such ranked column"),
    "unknown_owner": (404, "The owner has no entry here"),
    "unknown_post": (404, "No such post is remembered"),
    "unknown_key": (404, "No such API key"),
    "unknown_family": (404, "No such family"),
    "unknown_client": (404, "No such client"),
    "unknown_pool": (404, "No such pool of resources"),
    "unknown_region": (404, "The pool never had a resource in this region"),
    "unknown_lease": (404, "The key has no lease in this pool"),
    "not_ranked": (404, "The owner has no value in the columns asked for"),
    "no_profile": (404, "The owner has no profile"),
    "no_curve": (404, "The column has no curve yet"),
    "method_not_allowed": (405, "The path does not take this method"),
    "body_timeout": (408, "The body took too long to arrive"),
    "head_timeout": (408, "The headers of the request took too long to arrive"),
    "spec_conflict": (409, "The change would reinterpret stored values"),
    "post_id_conflict": (409, "The post id was used for another post"),
    "family_board": (409, "The leaderboard belongs to a family and changes only with the family"),
    "period_closed": (409, "The leaderboard, or its period, is closed"),
    "not_open_yet": (409, "The leaderboard has not opened yet"),
    "no_resource_available": (409, "The region has no resource left"),
    "ops_key_needed": (409, "No API key with the role ops would be left"),
    "archived": (410, "The leaderboard was archived, and its archive does not hold this"),
    "catalog_full": (409, "The service holds as many leaderboards, families, pools or API keys as it may"),
    "own_tables_full": (409, "The store holds as many leaderboards with tables of their own as it may"),
    "journal_pruned": (410, "The journal no longer reaches back that far"),
    "body_too_large": (413, "The body is larger than the service takes"),
    "unsupported_media_type": (415, "The service takes application/json"),
    "bad_value": (422, "The value is not valid here"),
    "value_out_of_range": (422, "The value or the result lies outside the column's range"),
    "bad_rank": (422, "Ranks start at 1"),
    "bad_spec": (422, "The parts of the leaderboard's specification contradict each other"),
    "unknown_facet": (422, "The family has no such facet"),
    "post_rejected": (422, "A post is all or nothing, and another part of it was refused"),
    "at_in_future": (422, "The post's time lies too far ahead"),
    "unsupported": (422, "This version does not support it"),
    "queue_full": (429, "Too many posts are waiting"),
    "rate_limited": (429, "The API key sends more than its rate allows"),
    "internal": (500, "The service failed; its log has the cause under the request id"),
    "store_damaged": (500, "The store's file is damaged"),
    "store_busy": (503, "The store can't keep up"),
    "too_many_bodies": (503, "Too many bodies are arriving at once"),
    "no_job_process": (503, "No job process is alive"),
    "timeout": (503, "The answer took too long"),
    "store_full": (507, "The store's disk is full"),
}

# Error of storage or jobs -> its code on the wire. A class that is missing here has the code of its nearest base class.
STORAGE_CODES: dict[type[BaseException], str] = {
    storage_errors.UnknownBoardError: "unknown_board",
    storage_errors.UnknownColumnError: "unknown_column",
    storage_errors.ValueOutOfRangeError: "value_out_of_range",
    storage_errors.PostIdConflictError: "post_id_conflict",
    storage_errors.AtInFutureError: "at_in_future",
    storage_errors.PeriodClosedError: "period_closed",
    storage_errors.NotOpenYetError: "not_open_yet",
    storage_errors.ArchivedError: "archived",
    storage_errors.FamilyBoardError: "family_board",
    storage_errors.UnknownFacetError: "unknown_facet",
    storage_errors.UnknownFamilyError: "unknown_family",
    storage_errors.TooManyFamiliesError: "catalog_full",
    storage_errors.PostError: "post_rejected",
    storage_errors.SpecConflictError: "spec_conflict",
    storage_errors.SpecInvalidError: "bad_spec",
    storage_errors.TooManyBoardsError: "catalog_full",
    storage_errors.TooManyOwnTablesError: "own_tables_full",
    storage_errors.UnknownOwnerError: "unknown_owner",
    storage_errors.UnknownPostError: "unknown_post",
    storage_errors.NotRankedError: "not_ranked",
    storage_errors.NoCurveError: "no_curve",
    storage_errors.BadCursorError: "bad_cursor",
    storage_errors.UnknownKeyError: "unknown_key",
    storage_errors.QueueFullError: "queue_full",
    storage_errors.StoreBusyError: "store_busy",
    storage_errors.StoreDamagedError: "store_damaged",
    storage_errors.StoreFullError: "store_full",
    storage_errors.UnknownClientError: "unknown_client",
    storage_errors.UnknownPoolError: "unknown_pool",
    storage_errors.UnknownLeaseError: "unknown_lease",
    storage_errors.UnknownRegionError: "unknown_region",
    storage_errors.NoResourceError: "no_resource_available",
    storage_errors.LeaseInPastError: "bad_value",
    storage_errors.TooManyPoolsError: "catalog_full",
    storage_errors.WaitTooLongError: "timeout",
    storage_errors.LostRaceError: "store_busy",
    job_errors.NoJobProcessError: "no_job_process",
    job_errors.TooManyRefreshRequestsError: "store_busy",
    job_errors.MethodUnsupportedError: "unsupported",
    storage_errors.TooManyKeysError: "catalog_full",
    storage_errors.OpsKeyNeededError: "ops_key_needed",
    TimeoutError: "timeout",
}

# The codes whose status differs in the error of a post, because a post names its columns in the body.
POST_STATUSES = {"unknown_column": 422}

TYPE_PREFIX = "urn:rankcurve:problem:"
SHOWN_CHARS_MAX = 80


class FieldError(msgspec.Struct, frozen=True):
    """One fault and its place in the request: `pointer` is a JSON pointer into the body, or the name of a parameter."""

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


class ServiceError(Exception):
    """The base class of every error that the service package raises."""


class ProblemError(ServiceError):
    """A fault with a stable `code`. If this error leaves a handler, the service answers with its problem document.

    `status` overrides the status of `CODES`. `headers` are added to the answer.
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
    ) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail
        self.errors = list(errors) if pointer is None else [FieldError(pointer, detail), *errors]
        self.status = CODES[code][0] if status is None else status
        self.headers = dict(headers or {})

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"

    def to_document(self) -> ProblemDocument:
        title = CODES[self.code][1]
        return ProblemDocument(TYPE_PREFIX + self.code, title, self.status, self.detail, self.code, self.errors)

    def to_json(self) -> bytes:
        return msgspec.json.encode(self.to_document())


def problem_of(error: BaseException) -> ProblemError:
    """Return a ProblemError unchanged. For another error, return a problem with the error's code in `STORAGE_CODES`.

    An error without a base class in that table is a bug, for which `internal_problem()` is returned.
    """
    if isinstance(error, ProblemError):
        return error
    for kind in type(error).__mro__:
        code = STORAGE_CODES.get(kind)
        if code is not None:
            return ProblemError(code, str(error) or CODES[code][1], pointer=getattr(error, "pointer", None))
    return internal_problem()


def internal_problem() -> ProblemError:
    """Return the problem for a bug. The text tells the caller only how to find the cause in the log."""
    return ProblemError("internal", "the request failed; its id is in the X-Request-Id header and in the service's log")


def post_problem_of(error: BaseException) -> ProblemError:
    """Return the problem for the error of a refused post, with a status from `POST_STATUSES` if the table has one."""
    problem = problem_of(error)
    problem.status = POST_STATUSES.get(problem.code, problem.status)
    return problem


def clip_text(text: str) -> str:
    """Shorten a caller's text and make it encodable as UTF-8, so that an error or a log line can quote it."""
    cut = text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"
    return cut.encode("utf-8", "backslashreplace").decode("utf-8")
