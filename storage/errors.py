"""The errors that storage raises. The docstring of a class is its default message.

StorageError
├── PostError                                 (the post was not applied)
│   └── PeriodClosedError with its subclasses                          (one board refused the post; others may take it)
├── StoreBusyError with its subclasses · QueueFullError            (trying again later may help)
├── WaitTooLongError with its subclass OutcomeUnknownError   (send the same post_id again)
├── LostRaceError                             (internal: the caller reads the rows again)
├── NotOwnerError                             (internal: the process that owns the store answers the request)
├── StoreDamagedError · RowDamagedError · StoreFullError   (trying again does not help until an operator acts)
├── StoreLockedError · StoreUnsupportedError · SchemaUnknownError   (at start)
├── StoreCopyError · StoreReadOnlyError     (another store takes the place of this one)
├── StoreExistsError · TooManyPartitionsError                      (nothing was created)
├── JournalIncompleteError · NothingReplayedError                  (nothing was rebuilt)
├── BackupFailedError                         (nothing was replaced)
└── the other errors, each for one reason to refuse a request
"""

from typing import Any


class StorageError(Exception):
    """The store refused the request."""

    def __init__(
        self, detail: str | None = None, *, pointer: str | None = None, retry_after_s: float | None = None
    ) -> None:
        sentence = (type(self).__doc__ or "").removesuffix(".")
        super().__init__(detail or sentence[:1].lower() + sentence[1:])
        self.pointer = pointer
        self.retry_after_s = retry_after_s  # after this time, trying again may help; None: the time is not known

    @property
    def detail(self) -> str:
        """The message for a person. It starts with a small letter and ends without a period."""
        return str(self.args[0])


class PostError(StorageError):
    """The post was not applied."""


class UnknownBoardError(PostError):
    """No such leaderboard."""


class UnknownColumnError(PostError):
    """No such column in this leaderboard."""


class ColumnComputedError(PostError):
    """The column is computed from others; post those instead."""


class ValueOutOfRangeError(PostError):
    """The value is outside the column's range."""


class PostIdConflictError(PostError):
    """The owner has used this post id with other stats, facets or `at`; a retry must repeat the post unchanged."""


class PostVoidedError(PostError):
    """The post with this id was taken back, and its id stays reserved."""


class OwnerMergedError(PostError):
    """The owner was merged into another one, which now has the entries."""

    into: str | None = None  # the other owner, if it was looked up


class PostLimitError(PostError):
    """The post exceeds a limit of the column."""


class PostHeldError(PostError):
    """The post is held until an operator accepts or refuses it."""


class AtInFutureError(PostError):
    """The time of the post is too far in the future."""


class PostRejectedError(PostError):
    """Another leaderboard rejected this post, which is applied to all of its leaderboards or to none."""


class PeriodClosedError(PostError):
    """The period of this leaderboard is closed."""


class NotOpenYetError(PeriodClosedError):
    """The leaderboard has not opened yet."""


class BeforeResetError(PeriodClosedError):
    """The post predates the last reset of the leaderboard."""


class EntryRefusedError(PeriodClosedError):
    """The leaderboard's entry rules do not allow this."""


class NotJoinedError(EntryRefusedError):
    """The owner has not joined the leaderboard."""


class NoPostsLeftError(EntryRefusedError):
    """The owner has no posts left on this leaderboard."""


class BoardFullError(EntryRefusedError):
    """The leaderboard is full."""


class NotOpenError(PostError):
    """The leaderboard is not open for joining yet."""


class NoEntryRulesError(PostError):
    """The leaderboard has no entry rules; post without joining."""


class UnknownFacetError(PostError):
    """The family has no such facet."""


class UnknownFamilyError(StorageError):
    """No such family."""


class FamilyBoardError(PostError):
    """The leaderboard belongs to a family; change the family instead."""


class SpecConflictError(StorageError):
    """The change would reinterpret stored values."""


class SpecInvalidError(StorageError):
    """The leaderboard's specification is invalid."""


class CatalogFullError(StorageError):
    """The limit of leaderboards, families, pools or keys is reached."""


class OwnTablesFullError(CatalogFullError):
    """The limit of leaderboards with their own tables is reached."""


class UnknownOwnerError(StorageError):
    """The owner has no entry in this leaderboard."""


class MergeConflictError(StorageError):
    """The two owners cannot be merged this way."""


class UnknownPostError(StorageError):
    """No such post, or it is no longer remembered."""


class NotRankedError(StorageError):
    """The owner has no value in any of the requested columns."""


class NoCurveError(StorageError):
    """No curve has been fitted for this column yet."""


class ArchivedError(StorageError):
    """The leaderboard was archived, and its archive does not keep this."""


class BadCursorError(StorageError):
    """The cursor belongs to another leaderboard or column; start from the first page."""


class JournalIncompleteError(StorageError):
    """The journal no longer holds every post behind the leaderboard."""


class NothingReplayedError(StorageError):
    """The journal has no post for the leaderboard."""


class QueueFullError(StorageError):
    """The queue of posts is full."""


class StoreBusyError(StorageError):
    """The store is overloaded."""


class StoreAwayError(StoreBusyError):
    """The store cannot be reached, or did not answer in time."""


class PartitionAwayError(StoreAwayError):
    """The database server that holds this data is not responding."""


class BoardChangedError(StoreBusyError):
    """Another process has just changed the leaderboard; try again."""


class RacesLostError(StoreBusyError):
    """Too many concurrent changes to the same rows; try again."""


class OverloadedError(StoreBusyError):
    """The store is overloaded; none of the posts was accepted."""


class LeaseTakenError(StoreBusyError):
    """Another holder has the lease."""

    def __init__(self, detail: str | None = None, *, free_in_us: int) -> None:
        super().__init__(detail)
        self.free_in_us = free_in_us  # the lease ends within this time, unless its holder renews it


class LeaseLostError(StoreBusyError):
    """The lease has passed to another holder."""


class UnknownPoolError(StorageError):
    """No such pool of resources."""


class UnknownRegionError(StorageError):
    """The pool has no such region."""


class NoResourceError(StorageError):
    """The region has no resource left."""


class UnknownLeaseError(StorageError):
    """The key has no lease in this pool."""


class LeaseInPastError(StorageError):
    """The lease would already have ended."""


class WaitTooLongError(StorageError):
    """The outcome was not known in time; retry with the same post_id."""


class OutcomeUnknownError(WaitTooLongError):
    """The store connection was lost before the posts were confirmed; retry with the same post_id."""


class LostRaceError(StorageError):
    """A row changed between its read and its conditional write."""


class OutdatedFactsError(LostRaceError):
    """A group of posts relied on facts that may be outdated (see `posting.group_facts`). It can run again at once."""

    def __init__(self, detail: str | None = None, *, learned: Any = None, **more: Any) -> None:
        super().__init__(detail, **more)
        self.learned = learned  # what the group has learned, as `group_facts.KnownFacts.keep` takes it


class NotOwnerError(StorageError):
    """Another process of this node owns the store."""


class StoreDamagedError(StorageError):
    """The store's file is damaged; restore a backup."""


class RowDamagedError(StorageError):
    """A row holds an unreadable value; correct or delete it in the database."""


class StoreFullError(StorageError):
    """The store's disk is full; nothing was written, and reads still work."""


class StoreLockedError(StorageError):
    """Another process owns this store."""


class StoreUnsupportedError(StorageError):
    """The store cannot be opened."""


class SchemaUnknownError(StorageError):
    """The store has a schema that this version does not know."""


class StoreCopyError(StorageError):
    """The store was copied to another one, or cannot be copied."""


class StoreReadOnlyError(StorageError):
    """Read-only while the store is being copied to another one; try again later."""


class StoreExistsError(StorageError):
    """A store already exists there."""


class TooManyPartitionsError(StorageError):
    """The limit of partitions is reached."""


class BackupFailedError(StorageError):
    """The backup could not be made or restored."""


class UnknownGrantError(StorageError):
    """No such grant."""


class UnknownWebhookError(StorageError):
    """No such webhook."""


class UnknownKeyError(StorageError):
    """No such API key."""


class OpsKeyNeededError(StorageError):
    """No valid API key with the role ops would be left; create another one first."""
