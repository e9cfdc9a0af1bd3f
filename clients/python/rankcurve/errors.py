"""The errors that the client raises, in one tree, with a class for each code with which the service rejects a request.

    RankcurveError
    ├── UnreachableError            no answer came; what was sent may or may not have been applied
    ├── UnexpectedAnswerError       an answer that does not follow the contract
    ├── BufferFullError             a post was not accepted, because too many others wait
    ├── UnsentPostsError            posts are left that the service did not settle; the error holds them
    ├── PostsRejectedError          the service rejected posts; the error holds the results of all
    ├── SpoolError                  the folder of a spool can't be used
    └── ApiError                    the service rejected the request: `status`, `code`, `problem`
        ├── NotFoundError           one class for each HTTP status ...
        │   └── UnknownBoardError   ... and below it one class for each code
        └── ...

A rejection whose code this version does not know becomes an error of its status, or a plain `ApiError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

if TYPE_CHECKING:
    from .answers import PostResult

PROBLEM_TYPES = "urn:rankcurve:problem:"  # every problem document of the service has a type of this name space
PASSING_STATUSES = (408, 429)


def one_line(text: str) -> str:
    """Replace each unprintable character by `?`, because terminals obey control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class FieldProblem(msgspec.Struct, frozen=True):
    """A fault and its place: a JSON pointer into the body, or the name of a parameter."""

    pointer: str = ""
    detail: str = ""


class Problem(msgspec.Struct, frozen=True):
    """The problem document (RFC 9457) in which the service says why it rejects a request."""

    type: str = ""
    title: str = ""
    detail: str = ""
    code: str = ""
    status: int = 0
    errors: list[FieldProblem] = []
    into: str | None = None  # the owner who has the entries, if the owner of the request was merged

    def text(self) -> str:
        """Format the code, the detail and the first pointers of the problem on one line, without control characters."""
        text = f"{self.code or 'error'}: {self.detail or self.title or 'no detail given'}"
        added = [error for error in self.errors if not (error.detail in self.detail and error.pointer in self.detail)]
        shown = [f"{error.pointer or '/'} {self._added_detail(error.detail)}".strip() for error in added[:3]]
        more = len(added) - len(shown)
        if shown:
            text += f" ({'; '.join(shown)}{f'; and {more} more' if more > 0 else ''})"
        return one_line(text)

    def _added_detail(self, detail: str) -> str:
        """Return the detail of a fault, or an empty text if the problem's own detail already ends with it."""
        return "" if self.detail.endswith(detail) else detail


class RankcurveError(Exception):
    """The request failed."""


class UnreachableError(RankcurveError):
    """No answer came from the service, so what was sent may or may not have been applied."""


class UnexpectedAnswerError(RankcurveError):
    """The answer does not follow the contract of the service."""


class BufferFullError(RankcurveError):
    """The buffer is full of posts waiting to be sent, so it did not accept this one."""


class UnsentPostsError(RankcurveError):
    """The buffer ended with posts whose outcome is unknown. `posts` holds them as they were sent, with their ids.

    With a spool, they are also kept on disk, and the next buffer on that folder sends them. `cause` is the error that
    ended the buffer. If it is None, the time for closing was over, and `last` is the error of the last attempt.
    """

    def __init__(
        self, posts: Sequence[dict[str, Any]], cause: BaseException | None, last: BaseException | None = None
    ) -> None:
        why = cause or f"the time for closing is over{f' ({last})' if last else ''}"
        super().__init__(f"{len(posts):,} posts are not settled: {why}")
        self.posts = posts


class PostsRejectedError(RankcurveError):
    """The service rejected some posts, and stored the others.

    `results` holds the results of all posts in the request, in order.
    """

    def __init__(self, results: Sequence[PostResult]) -> None:
        rejected = [index for index, result in enumerate(results) if result.status == "rejected"]
        first = results[rejected[0]]
        why = (first.error or Problem(code="rejected")).text()
        count = f"{len(rejected):,} of {len(results):,} posts were rejected"
        owner = f" of {first.owner!r}" if first.owner else ""
        super().__init__(f"{count}; post {rejected[0] + 1}{owner}: {why}")
        self.results = results


class SpoolError(RankcurveError):
    """The spool folder cannot be used."""


_BY_CODE: dict[str, type[ApiError]] = {}
_BY_STATUS: dict[int, type[ApiError]] = {}


class ApiError(RankcurveError):
    """The service rejected the request. `code` is stable; the message is for people."""

    codes: ClassVar[dict[str, type[ApiError]]] = _BY_CODE

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(problem.text())
        self.status = status
        self.code = problem.code
        self.problem = problem

    @property
    def final(self) -> bool:
        """Tell whether the service itself rejected the request, and would again. Other errors may be temporary."""
        own = self.problem.type.startswith(PROBLEM_TYPES)
        return own and self.status < 500 and self.status not in PASSING_STATUSES

    def __init_subclass__(cls, *, status: int = 0, code: str = "") -> None:
        if status:
            _BY_STATUS[status] = cls
        if code:
            _BY_CODE[code] = cls


def refusal_of(status: int, content: bytes) -> ApiError:
    """Build the error for an unsuccessful answer. Without a problem document, its code names the HTTP status."""
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        problem = Problem()
    if not problem.code:
        problem = Problem(
            type=problem.type, code=f"http_{status}", detail=problem.detail or problem.title or "no problem document"
        )
    return (_BY_CODE.get(problem.code) or _BY_STATUS.get(status) or ApiError)(status, problem)


class BadRequestError(ApiError, status=400, code="bad_request"):
    """The request is malformed."""


class BadJsonError(BadRequestError, code="bad_json"):
    """The body is not JSON in UTF-8."""


class UnknownFieldError(BadRequestError, code="unknown_field"):
    """The service knows no such field."""


class DuplicateFieldError(BadRequestError, code="duplicate_field"):
    """The same field is given twice."""


class ColumnNeededError(BadRequestError, code="column_needed"):
    """The leaderboard has several ranked columns; name one."""


class BadCursorError(BadRequestError, code="bad_cursor"):
    """The cursor does not belong to this ranking or list."""


class TooManyPostsError(BadRequestError, code="too_many_posts"):
    """The request has too many posts."""


class TooManyBoardsError(BadRequestError, code="too_many_boards"):
    """The request names too many leaderboards."""


class TooManyEntriesError(BadRequestError, code="too_many_entries"):
    """The page would have too many entries."""


class TooManyOwnersError(BadRequestError, code="too_many_owners"):
    """The request names too many owners."""


class TooManyValuesError(BadRequestError, code="too_many_values"):
    """The query asks for too many values."""


class TooManyBucketsError(BadRequestError, code="too_many_buckets"):
    """The query asks for too many buckets."""


class TooManyResourcesError(BadRequestError, code="too_many_resources"):
    """The request has too many resources."""


class UnauthorizedError(ApiError, status=401, code="unauthorized"):
    """The request needs an API key."""


class BadTokenError(UnauthorizedError, code="bad_token"):
    """The player token is invalid."""


class TokenExpiredError(UnauthorizedError, code="token_expired"):
    """The player token has expired, or is not valid yet."""


class TokenVoidedError(UnauthorizedError, code="token_voided"):
    """The owner's earlier player tokens were voided."""


class ForbiddenError(ApiError, status=403, code="forbidden"):
    """The API key's role does not allow this."""


class ForeignOwnerError(ForbiddenError, code="foreign_owner"):
    """The player token was issued for another owner."""


class ForeignBoardError(ForbiddenError, code="foreign_board"):
    """The player token does not cover this leaderboard or family."""


class TokenUsedUpError(ForbiddenError, code="token_used_up"):
    """The player token has no posts left."""


class HostNotAllowedError(ForbiddenError, code="host_not_allowed"):
    """A service without API keys answers only to loopback names in `Host`."""


class NotFoundError(ApiError, status=404, code="not_found"):
    """No such path."""


class UnknownBoardError(NotFoundError, code="unknown_board"):
    """No such leaderboard."""


class UnknownColumnError(NotFoundError, code="unknown_column"):
    """The leaderboard has no such ranked column."""


class UnknownOwnerError(NotFoundError, code="unknown_owner"):
    """The owner has no entry here."""


class UnknownPostError(NotFoundError, code="unknown_post"):
    """No such post, or it is no longer remembered."""


class UnknownKeyError(NotFoundError, code="unknown_key"):
    """No such API key."""


class UnknownWebhookError(NotFoundError, code="unknown_webhook"):
    """No such webhook."""


class UnknownGrantError(NotFoundError, code="unknown_grant"):
    """No such grant."""


class UnknownFamilyError(NotFoundError, code="unknown_family"):
    """No such family."""


class UnknownPoolError(NotFoundError, code="unknown_pool"):
    """No such pool of resources."""


class UnknownRegionError(NotFoundError, code="unknown_region"):
    """The pool has never had a resource in this region."""


class UnknownLeaseError(NotFoundError, code="unknown_lease"):
    """The key has no lease in this pool."""


class OwnerMergedError(NotFoundError, code="owner_merged"):
    """The owner was merged into another one: see `problem.into`."""


class NotRankedError(NotFoundError, code="not_ranked"):
    """The owner has no value in the requested columns."""


class NoProfileError(NotFoundError, code="no_profile"):
    """The owner has no profile."""


class UnknownTierError(NotFoundError, code="unknown_tier"):
    """The column has no such tier."""


class NoCurveError(NotFoundError, code="no_curve"):
    """The column has no curve yet."""


class MethodNotAllowedError(ApiError, status=405, code="method_not_allowed"):
    """The path does not support this method."""


class RequestTimeoutError(ApiError, status=408):
    """The request took too long to arrive."""


class BodyTimeoutError(RequestTimeoutError, code="body_timeout"):
    """The body took too long to arrive."""


class ConflictError(ApiError, status=409):
    """The request conflicts with what is stored."""


class SpecConflictError(ConflictError, code="spec_conflict"):
    """The change would reinterpret stored values."""


class PostIdConflictError(ConflictError, code="post_id_conflict"):
    """The post id was already used for another post."""


class FamilyBoardError(ConflictError, code="family_board"):
    """The leaderboard belongs to a family; change the family instead."""


class PeriodClosedError(ConflictError, code="period_closed"):
    """The leaderboard or its period is closed."""


class NotOpenYetError(ConflictError, code="not_open_yet"):
    """The leaderboard has not opened yet."""


class NotOpenError(ConflictError, code="not_open"):
    """The leaderboard is not open for joining yet."""


class NoEntryRulesError(ConflictError, code="no_entry_rules"):
    """The leaderboard has no entry rules; post without joining."""


class NotJoinedError(ConflictError, code="not_joined"):
    """The owner has not joined the leaderboard."""


class NoPostsLeftError(ConflictError, code="no_posts_left"):
    """The owner has no posts left on this leaderboard."""


class BoardFullError(ConflictError, code="board_full"):
    """The leaderboard is full."""


class BeforeResetError(ConflictError, code="before_reset"):
    """The post predates the last reset of the leaderboard."""


class MergeConflictError(ConflictError, code="merge_conflict"):
    """The owners cannot be merged this way."""


class PostVoidedError(ConflictError, code="post_voided"):
    """The post with this id was taken back."""


class VerdictConflictError(ConflictError, code="verdict_conflict"):
    """The held post was already accepted or refused."""


class NoResourceAvailableError(ConflictError, code="no_resource_available"):
    """The region has no free resource."""


class OpsKeyNeededError(ConflictError, code="ops_key_needed"):
    """The last API key with the role ops has to stay."""


class CatalogFullError(ConflictError, code="catalog_full"):
    """The limit of leaderboards, families, pools or API keys is reached."""


class OwnTablesFullError(ConflictError, code="own_tables_full"):
    """The limit of leaderboards with their own tables is reached."""


class GoneError(ApiError, status=410):
    """The service no longer holds this."""


class ArchivedError(GoneError, code="archived"):
    """The leaderboard was archived, and its archive does not keep this."""


class JournalPrunedError(GoneError, code="journal_pruned"):
    """The journal no longer reaches back that far."""


class BodyTooLargeError(ApiError, status=413, code="body_too_large"):
    """The body is too large."""


class UnsupportedMediaTypeError(ApiError, status=415, code="unsupported_media_type"):
    """The service does not accept this content type or encoding."""


class InvalidError(ApiError, status=422):
    """A value, or a part of a specification, is invalid."""


class BadValueError(InvalidError, code="bad_value"):
    """The value is invalid."""


class ColumnComputedError(InvalidError, code="column_computed"):
    """The column is computed from others; post those instead."""


class ValueOutOfRangeError(InvalidError, code="value_out_of_range"):
    """The value or the merged result is out of the column's range."""


class BadRankError(InvalidError, code="bad_rank"):
    """Ranks start at 1."""


class PostLimitError(InvalidError, code="post_limit"):
    """The post exceeds a limit of the column or the token."""


class BadSpecError(InvalidError, code="bad_spec"):
    """Parts of the specification contradict each other."""


class UnknownFacetError(InvalidError, code="unknown_facet"):
    """The family has no such facet."""


class PostRejectedError(InvalidError, code="post_rejected"):
    """Another part of the post was rejected, and a post is applied whole or not at all."""


class AtInFutureError(InvalidError, code="at_in_future"):
    """The time of the post is too far in the future."""


class UnsupportedError(InvalidError, code="unsupported"):
    """The service does not support it in this version."""


class TooManyRequestsError(ApiError, status=429):
    """The caller sends too much; wait, then try again."""


class QueueFullError(TooManyRequestsError, code="queue_full"):
    """Too many posts are waiting."""


class RateLimitedError(TooManyRequestsError, code="rate_limited"):
    """The API key has exceeded its rate limit."""


class ServerError(ApiError, status=500):
    """The service failed."""


class InternalError(ServerError, code="internal"):
    """The service failed; its log has the cause under the request id."""


class StoreDamagedError(ServerError, code="store_damaged"):
    """The store's file is damaged."""


class UnavailableError(ServerError, status=503):
    """The service is temporarily unavailable."""


class StoreBusyError(UnavailableError, code="store_busy"):
    """The store is overloaded."""


class PartitionAwayError(UnavailableError, code="partition_away"):
    """The database server that holds this is not responding."""


class StoreReadOnlyError(UnavailableError, code="store_read_only"):
    """The service is read-only while its store is being copied."""


class TooManyBodiesError(UnavailableError, code="too_many_bodies"):
    """Too many bodies are arriving at once."""


class NoJobProcessError(UnavailableError, code="no_job_process"):
    """No job process is running."""


class AnswerTimeoutError(UnavailableError, code="timeout"):
    """The answer took too long."""


class StoreFullError(ServerError, status=507, code="store_full"):
    """The store's disk is full."""
