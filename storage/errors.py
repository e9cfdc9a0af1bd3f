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
        """Return the message for a person. It starts with a small letter and ends without a period."""
        return str(self.args[0])


class PostError(StorageError):
    """The post was not applied."""


class UnknownBoardError(PostError):
    """No such leaderboard."""


class UnknownColumnError(PostError):
    """No such column in this leaderboard."""


class ColumnComputedError(PostError):
    """The column is computed from other columns, so it can be neither posted nor set."""


class ValueOutOfRangeError(PostError):
    """The value is outside the column's range."""


class PostIdConflictError(PostError):
    """The owner used the post id before with other stats, facets or `at`; a retry repeats the post unchanged."""


class PostVoidedError(PostError):
    """The post with this id was taken back, and the id stays taken."""


class OwnerMergedError(PostError):
    """The owner was merged into another one, which has the entries now."""

    into: str | None = None  # the other owner, if it was looked up


class PostLimitError(PostError):
    """The post brings more than a limit of the column allows."""


class PostHeldError(PostError):
    """The post is held until an operator accepts or refuses it."""


class AtInFutureError(PostError):
    """The time of the post is too far in the future."""


class PostRejectedError(PostError):
    """Another board refused this post, and a post changes either all of its boards or none."""


class PeriodClosedError(PostError):
    """The period of this leaderboard is closed."""


class NotOpenYetError(PeriodClosedError):
    """The leaderboard has not opened yet."""


class BeforeResetError(PeriodClosedError):
    """The post is from a time before the leaderboard was last emptied."""


class EntryRefusedError(PeriodClosedError):
    """The entry rules of the leaderboard refuse this."""


class NotJoinedError(EntryRefusedError):
    """The owner has not joined the leaderboard."""


class NoPostsLeftError(EntryRefusedError):
    """The owner has used all posts that the leaderboard takes of an owner."""


class BoardFullError(EntryRefusedError):
    """The leaderboard has as many owners as it may have."""


class NotOpenError(PostError):
    """The leaderboard has not opened yet, so nobody can join it."""


class NoEntryRulesError(PostError):
    """The leaderboard has no entry rules: nobody needs to join it."""


class UnknownFacetError(PostError):
    """The family has no such facet."""


class UnknownFamilyError(StorageError):
    """No such family."""


class FamilyBoardError(PostError):
    """The leaderboard belongs to a family and can be changed only with the whole family."""


class SpecConflictError(StorageError):
    """The change would reinterpret stored values."""


class SpecInvalidError(StorageError):
    """The leaderboard's specification is not valid."""


class CatalogFullError(StorageError):
    """The store holds as many leaderboards, families, pools or keys as its settings allow."""


class OwnTablesFullError(CatalogFullError):
    """The store holds as many leaderboards with tables of their own as its setting allows."""


class UnknownOwnerError(StorageError):
    """The owner has no entry in this leaderboard."""


class MergeConflictError(StorageError):
    """The two owners can't be merged in this way."""


class UnknownPostError(StorageError):
    """The store has no such post, or no longer remembers it."""


class NotRankedError(StorageError):
    """The owner has no value in any of the requested columns."""


class NoCurveError(StorageError):
    """No curve has been fitted for this column yet."""


class ArchivedError(StorageError):
    """The leaderboard was archived, and its archive does not hold the requested data."""


class BadCursorError(StorageError):
    """The cursor does not belong to this board and column."""


class JournalIncompleteError(StorageError):
    """The journal does not hold everything that is in the leaderboard."""


class NothingReplayedError(StorageError):
    """The journal has no post for the leaderboard."""


class QueueFullError(StorageError):
    """The queue of posts is full."""


class StoreBusyError(StorageError):
    """The store could not keep up."""


class StoreAwayError(StoreBusyError):
    """The store cannot be reached, or does not answer in time."""


class PartitionAwayError(StoreAwayError):
    """The database server that holds this part of the data does not answer."""


class BoardChangedError(StoreBusyError):
    """Another process changed the leaderboard, and this process has not noticed it yet."""


class RacesLostError(StoreBusyError):
    """Rows kept changing between their reads and their conditional writes."""


class OverloadedError(StoreBusyError):
    """The posts would have to wait too long, so the store took none of them."""


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
    """The outcome was not known in time; send the same post_id again."""


class OutcomeUnknownError(WaitTooLongError):
    """The connection to the store was lost before the store confirmed the posts; send the same post_id again."""


class LostRaceError(StorageError):
    """A row changed between its read and its conditional write."""


class OutdatedFactsError(LostRaceError):
    """A group of posts relied on facts that may be outdated (see `posting.group_facts`). It can run again at once."""

    def __init__(self, detail: str | None = None, *, learned: Any = None, **more: Any) -> None:
        super().__init__(detail, **more)
        self.learned = learned  # what the group has learned, as `group_facts.KnownFacts.keep` takes it


class NotOwnerError(StorageError):
    """Only another process of this node may write to the store."""


class StoreDamagedError(StorageError):
    """The store's file is damaged; restore a backup."""


class RowDamagedError(StorageError):
    """A row has a value that can't be read; correct or delete the row in the database."""


class StoreFullError(StorageError):
    """The disk of the store is full; nothing was written, but reads still work."""


class StoreLockedError(StorageError):
    """Another process owns this store."""


class StoreUnsupportedError(StorageError):
    """The store cannot be opened."""


class SchemaUnknownError(StorageError):
    """The store has a schema that this version does not know."""


class StoreCopyError(StorageError):
    """The store was copied to another one, or it can't be copied."""


class StoreReadOnlyError(StorageError):
    """The service is started to serve reads only, while its store is copied to another one."""


class StoreExistsError(StorageError):
    """There is already a store."""


class TooManyPartitionsError(StorageError):
    """The store has as many partitions as a store can have."""


class BackupFailedError(StorageError):
    """The backup was not made, or not restored."""


class UnknownGrantError(StorageError):
    """No such grant."""


class UnknownWebhookError(StorageError):
    """No such webhook."""


class UnknownKeyError(StorageError):
    """No such API key."""


class OpsKeyNeededError(StorageError):
    """The change would leave no valid API key with the role ops."""
