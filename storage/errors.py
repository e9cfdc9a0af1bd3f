"""What storage can refuse, as one tree whose class docstrings are the messages.

StorageError
├── PostError (one post, nothing of it applied)
│   ├── UnknownBoardError · UnknownColumnError · NotASortedColumnError · ValueOutOfRangeError
│   ├── PostIdConflictError · AtInFutureError · PostRejectedError · FamilyBoardError · UnknownFacetError
│   └── PeriodClosedError (NotOpenYetError)               (one board of the post, whatever becomes of the others)
├── SpecConflictError · SpecInvalidError · TooManyBoardsError (TooManyOwnTablesError)
├── TooManyKeysError · UnknownKeyError · OpsKeyNeededError
├── UnknownFamilyError · TooManyFamiliesError
├── UnknownOwnerError · UnknownPostError · NotRankedError · NoCurveError · BadCursorError · ArchivedError
├── JournalIncompleteError · NothingReplayedError   (nothing was rebuilt)
├── QueueFullError                                  (try again later)
├── StoreBusyError (OverloadedError · RacesLostError · StoreAwayError · BoardChangedError
│                   LeaseTakenError · LeaseLostError)   (try again later)
├── WaitTooLongError (OutcomeUnknownError)          (send the same post_id again)
├── LostRaceError                                   (internal: the group is read again)
├── StoreDamagedError · StoreFullError              (trying again does not help before an operator does)
├── StoreLockedError · StoreUnsupportedError · SchemaTooNewError   (at start)
└── BackupFailedError                               (nothing was replaced)
"""

from __future__ import annotations


class StorageError(Exception):
    """the store refused"""

    def __init__(
        self, detail: str | None = None, *, pointer: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(detail or self.__class__.__doc__ or "")
        self.pointer = pointer
        self.retry_after_s = retry_after_s  # when trying again may help, where that is known

    @property
    def detail(self) -> str:
        """The sentence for a person."""
        return str(self.args[0])


class PostError(StorageError):
    """the post was not applied"""


class UnknownBoardError(PostError):
    """no such leaderboard"""


class UnknownColumnError(PostError):
    """no such column in this leaderboard"""


class NotASortedColumnError(PostError):
    """the column is not ranked"""


class ValueOutOfRangeError(PostError):
    """the value is outside the column's range"""


class PostIdConflictError(PostError):
    """the post id was used before with another owner, stats, facets or `at`: a retry repeats `at`, or has none again"""


class AtInFutureError(PostError):
    """the time of the post is too far ahead"""


class PostRejectedError(PostError):
    """another board of this post refused it, and a post is all or nothing"""


class PeriodClosedError(PostError):
    """the period of this leaderboard is closed"""


class NotOpenYetError(PeriodClosedError):
    """the leaderboard has not opened yet"""


class UnknownFacetError(PostError):
    """the family has no such facet"""


class UnknownFamilyError(StorageError):
    """no such family"""


class FamilyBoardError(PostError):
    """the leaderboard is a family's"""


class TooManyFamiliesError(StorageError):
    """the store holds as many families as its setting allows"""


class SpecConflictError(StorageError):
    """the change would reinterpret stored values"""


class SpecInvalidError(StorageError):
    """the leaderboard's specification is not valid"""


class TooManyBoardsError(StorageError):
    """the store holds as many leaderboards as its setting allows"""


class TooManyOwnTablesError(TooManyBoardsError):
    """the store holds as many leaderboards with tables of their own as its setting allows"""


class UnknownOwnerError(StorageError):
    """the owner has no entry in this leaderboard"""


class UnknownPostError(StorageError):
    """nothing is known of such a post, or no longer"""


class NotRankedError(StorageError):
    """the owner has no value in any of the columns asked for"""


class NoCurveError(StorageError):
    """no curve has been fitted for this column yet"""


class ArchivedError(StorageError):
    """the leaderboard was archived, and its archive does not hold this"""


class BadCursorError(StorageError):
    """the cursor is not one of this board and column"""


class JournalIncompleteError(StorageError):
    """the journal does not say everything that is in the leaderboard"""


class NothingReplayedError(StorageError):
    """the journal has no post for the leaderboard"""


class QueueFullError(StorageError):
    """the queue of posts is full"""


class StoreBusyError(StorageError):
    """the store could not keep up"""


class StoreAwayError(StoreBusyError):
    """the store cannot be reached, or not in time"""


class BoardChangedError(StoreBusyError):
    """another process changed the leaderboard, and this one has yet to notice"""


class ChangesUnorderedError(StoreBusyError):
    """a transaction has been running for too long: which changes are in is not known before it ends"""


class RacesLostError(StoreBusyError):
    """rows kept changing between their reads and their conditional writes"""


class OverloadedError(StoreBusyError):
    """the posts would wait longer than they may: nothing was taken"""


class LeaseTakenError(StoreBusyError):
    """someone else has the lease"""

    def __init__(self, detail: str | None = None, *, free_in_us: int) -> None:
        super().__init__(detail)
        self.free_in_us = free_in_us  # at the latest, unless its holder renews it


class LeaseLostError(StoreBusyError):
    """the lease is somebody else's by now"""


class UnknownClientError(StorageError):
    """no such client"""


class UnknownPoolError(StorageError):
    """no such pool of resources"""


class TooManyPoolsError(StorageError):
    """the store holds as many pools as its setting allows"""


class UnknownRegionError(StorageError):
    """the pool has no such region"""


class NoResourceError(StorageError):
    """the region has no resource left"""


class UnknownLeaseError(StorageError):
    """the key has no lease in this pool"""


class LeaseInPastError(StorageError):
    """the lease would be over already"""


class WaitTooLongError(StorageError):
    """the outcome was not known in time: send the same post_id again"""


class OutcomeUnknownError(WaitTooLongError):
    """the connection to the store was lost before it said whether the posts are in: send the same post_id again"""


class LostRaceError(StorageError):
    """a row changed between its read and its conditional write"""


class StoreDamagedError(StorageError):
    """the store's file is damaged: restore a backup"""


class StoreFullError(StorageError):
    """the disk of the store is full: nothing was written, reads go on"""


class StoreLockedError(StorageError):
    """another process owns this store"""


class StoreUnsupportedError(StorageError):
    """this store cannot be opened"""


class SchemaTooNewError(StorageError):
    """the store was written by a newer version"""


class BackupFailedError(StorageError):
    """the backup was not made, or not restored"""


class TooManyKeysError(StorageError):
    """the store holds as many keys as its setting allows"""


class UnknownKeyError(StorageError):
    """no such API key"""


class OpsKeyNeededError(StorageError):
    """no API key with the role ops would be valid"""
