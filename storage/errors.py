"""What storage can refuse, as one tree whose class docstrings are the messages.

StorageError
├── PostError (one post, nothing of it applied)
│   ├── UnknownBoard · UnknownColumn · NotASortedColumn · ValueOutOfRange
│   ├── PostIdConflict · AtInFuture · PostRejected · FamilyBoard · UnknownFacet
│   └── PeriodClosed (NotOpenYet)               (one board of the post, whatever becomes of the others)
├── SpecConflict · SpecInvalid · TooManyBoards (TooManyOwnTables) · TooManyKeys · UnknownKey · OpsKeyNeeded
├── UnknownFamily · TooManyFamilies
├── UnknownOwner · UnknownPost · NotRanked · NoCurve · BadCursor · Archived
├── JournalIncomplete · NothingReplayed        (nothing was rebuilt)
├── QueueFull · StoreBusy (Overloaded · RacesLost · StoreAway · BoardChanged
│                LeaseTaken · LeaseLost)                   (try again later)
├── WaitTooLong (OutcomeUnknown)                          (send the same post_id again)
├── LostRace                                 (internal: the group is read again)
├── StoreDamaged · StoreFull                 (trying again does not help before an operator does)
├── StoreLocked · StoreUnsupported · SchemaTooNew   (at start)
└── BackupFailed                             (nothing was replaced)
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


class UnknownBoard(PostError):
    """no such leaderboard"""


class UnknownColumn(PostError):
    """no such column in this leaderboard"""


class NotASortedColumn(PostError):
    """the column is not ranked"""


class ValueOutOfRange(PostError):
    """the value is outside the column's range"""


class PostIdConflict(PostError):
    """the post id was used before with another owner, stats, facets or `at`: a retry repeats `at`, or has none again"""


class AtInFuture(PostError):
    """the time of the post is too far ahead"""


class PostRejected(PostError):
    """another board of this post refused it, and a post is all or nothing"""


class PeriodClosed(PostError):
    """the period of this leaderboard is closed"""


class NotOpenYet(PeriodClosed):
    """the leaderboard has not opened yet"""


class UnknownFacet(PostError):
    """the family has no such facet"""


class UnknownFamily(StorageError):
    """no such family"""


class FamilyBoard(PostError):
    """the leaderboard is a family's"""


class TooManyFamilies(StorageError):
    """the store holds as many families as its setting allows"""


class SpecConflict(StorageError):
    """the change would reinterpret stored values"""


class SpecInvalid(StorageError):
    """the leaderboard's specification is not valid"""


class TooManyBoards(StorageError):
    """the store holds as many leaderboards as its setting allows"""


class TooManyOwnTables(TooManyBoards):
    """the store holds as many leaderboards with tables of their own as its setting allows"""


class UnknownOwner(StorageError):
    """the owner has no entry in this leaderboard"""


class UnknownPost(StorageError):
    """nothing is known of such a post, or no longer"""


class NotRanked(StorageError):
    """the owner has no value in any of the columns asked for"""


class NoCurve(StorageError):
    """no curve has been fitted for this column yet"""


class Archived(StorageError):
    """the leaderboard was archived, and its archive does not hold this"""


class BadCursor(StorageError):
    """the cursor is not one of this board and column"""


class JournalIncomplete(StorageError):
    """the journal does not say everything that is in the leaderboard"""


class NothingReplayed(StorageError):
    """the journal has no post for the leaderboard"""


class QueueFull(StorageError):
    """the queue of posts is full"""


class StoreBusy(StorageError):
    """the store could not keep up"""


class StoreAway(StoreBusy):
    """the store cannot be reached, or not in time"""


class BoardChanged(StoreBusy):
    """another process changed the leaderboard, and this one has yet to notice"""


class ChangesUnordered(StoreBusy):
    """a transaction has been running for too long: which changes are in is not known before it ends"""


class RacesLost(StoreBusy):
    """rows kept changing between their reads and their conditional writes"""


class Overloaded(StoreBusy):
    """the posts would wait longer than they may: nothing was taken"""


class LeaseTaken(StoreBusy):
    """someone else has the lease"""

    def __init__(self, detail: str | None = None, *, free_in_us: int) -> None:
        super().__init__(detail)
        self.free_in_us = free_in_us  # at the latest, unless its holder renews it


class LeaseLost(StoreBusy):
    """the lease is somebody else's by now"""


class UnknownClient(StorageError):
    """no such client"""


class UnknownPool(StorageError):
    """no such pool of resources"""


class TooManyPools(StorageError):
    """the store holds as many pools as its setting allows"""


class UnknownRegion(StorageError):
    """the pool has no such region"""


class NoResource(StorageError):
    """the region has no resource left"""


class UnknownLease(StorageError):
    """the key has no lease in this pool"""


class LeaseInPast(StorageError):
    """the lease would be over already"""


class WaitTooLong(StorageError):
    """the outcome was not known in time: send the same post_id again"""


class OutcomeUnknown(WaitTooLong):
    """the connection to the store was lost before it said whether the posts are in: send the same post_id again"""


class LostRace(StorageError):
    """a row changed between its read and its conditional write"""


class StoreDamaged(StorageError):
    """the store's file is damaged: restore a backup"""


class StoreFull(StorageError):
    """the disk of the store is full: nothing was written, reads go on"""


class StoreLocked(StorageError):
    """another process owns this store"""


class StoreUnsupported(StorageError):
    """this store cannot be opened"""


class SchemaTooNew(StorageError):
    """the store was written by a newer version"""


class BackupFailed(StorageError):
    """the backup was not made, or not restored"""


class TooManyKeys(StorageError):
    """the store holds as many keys as its setting allows"""


class UnknownKey(StorageError):
    """no such API key"""


class OpsKeyNeeded(StorageError):
    """no API key with the role ops would be valid"""
