"""Lists the rules that decide whether a board refuses a post. They are tried in order, and the first refusal decides.

Direct posts, posts to a family and queued posts all pass this list in the transaction that applies them (`decision`).
Views also consult it when a post arrives or before they queue it, with what the process knows of the boards. Likewise,
`storage.queue.queue_application` applies it to boards that were deleted or emptied after a post was queued.

To add a rule, write a function, put it into `RULES`, and give its error a class in `storage/errors.py` and a code in
`service/contract/problems.py`. If the other boards may still accept the post, derive the error from
`PeriodClosedError`.

A post that passes can still fail in its last step, when `Merger.merge_changes` refuses a result outside a column's
range. Rules do not check the form of a request, nor names and types of columns: views do so while they parse.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from storage.boards.family_ids import describe_closed
from storage.errors import (
    AtInFutureError,
    BeforeResetError,
    BoardFullError,
    NoPostsLeftError,
    NotJoinedError,
    NotOpenError,
    NotOpenYetError,
    OwnerMergedError,
    PeriodClosedError,
    PostError,
    PostHeldError,
    PostIdConflictError,
    PostLimitError,
    PostVoidedError,
    UnknownBoardError,
)
from storage.limits.gains import Gains, sum_recent
from storage.limits.held_posts import HELD_POSTS_MAX
from storage.periods import format_time
from storage.records import ColumnChange, ColumnSpec, EntryRules, Gate, Post, PostLimits, format_decimal

from .post_ids import RememberedPost


class Attempt(NamedTuple):
    """Describes an attempt to post to a board or to join it, with the facts that rules judge it by.

    A fact that does not apply is None, 0 or False.
    """

    named_us: int | None  # the time that the post names
    now_us: int  # when the post was accepted
    board_id: str = ""  # empty if the attempt is judged by other facts alone, for example because the post is a retry
    in_family: bool = False
    fingerprint: str = ""  # of the post
    ahead_s_max: float | None = None  # how far in the future the time of a post may be
    known: RememberedPost | None = None  # the post that was applied with this id
    deleted: str | None = None  # how the board was lost, for a message
    is_emptied: bool = False  # whether the board was emptied since the post was queued
    gate: Gate | None = None  # None: the board takes posts of any time
    reset_us: int = 0  # when the board was last emptied
    is_merged: bool = False  # whether the owner was merged into another one
    entry: EntryRules | None = None  # the entry rules of the board; the next three facts are known if it has some
    is_entrant: bool = False  # whether the owner takes part
    posts: int = 0  # how many posts of the owner were accepted
    owners: int = 0  # how many owners take part
    joins: bool = False  # whether the owner asks to join
    changes: Sequence[ColumnChange] = ()  # of the post, if limits judge them
    limited: Sequence[tuple[int, ColumnSpec]] = ()  # the columns that have limits, with their indexes
    gains: Gains | None = None  # what the owner has lately gained in them
    asks_hold: bool = False  # whether the caller wants the post to be held
    held: int = 0  # how many posts of the board are held

    @property
    def at_us(self) -> int:
        return self.now_us if self.named_us is None else self.named_us

    @property
    def pointer(self) -> str | None:
        """The JSON pointer to the time for which the attempt is refused, or None for a request to join."""
        return None if self.joins else "/at"


class Rule(NamedTuple):
    refuse: Callable[[Attempt], PostError | None]
    given: str = (
        "board_id"  # the rule is asked only if this fact says something; nearly every post has none of the others
    )


def refuse_future(attempt: Attempt) -> PostError | None:
    ahead_s_max = attempt.ahead_s_max or 0
    if attempt.at_us <= attempt.now_us + ahead_s_max * 1e6:
        return None
    return AtInFutureError(f"`at` is more than {ahead_s_max:.15g} s in the future", pointer="/at")


def refuse_voided(attempt: Attempt) -> PostError | None:
    assert attempt.known is not None
    return PostVoidedError(pointer="/post_id") if attempt.known.is_voided else None


def refuse_taken_id(attempt: Attempt) -> PostError | None:
    assert attempt.known is not None
    is_retry = attempt.known.fingerprint == attempt.fingerprint
    return None if is_retry else PostIdConflictError(pointer="/post_id")


def refuse_merged(_: Attempt) -> PostError | None:
    return OwnerMergedError(pointer="/owner")


def refuse_deleted(attempt: Attempt) -> PostError | None:
    return UnknownBoardError(attempt.deleted)


def refuse_emptied(_: Attempt) -> PostError | None:
    return BeforeResetError("the leaderboard was emptied since the post was accepted")


def refuse_closed(attempt: Attempt) -> PostError | None:
    gate = attempt.gate
    assert gate is not None
    is_shut = gate.is_shut(attempt.now_us)
    if not is_shut and (gate.ends_us is None or attempt.at_us < gate.ends_us):
        return None
    if attempt.in_family:
        return PeriodClosedError(describe_closed(attempt.board_id, gate.ends_us), pointer=attempt.pointer)
    ended = "" if gate.ends_us is None else f"ended at {format_time(gate.ends_us)}"
    if is_shut:
        detail = f"is closed{ended and f': it {ended}, and the time for late posts is over'}. Only operators can still"
        detail += " change the result, by erasing entries, or by taking posts back while it has rows"
    else:
        left_s = ((gate.closes_us or attempt.now_us) - attempt.now_us) // 1_000_000
        detail = f"{ended}. For another {left_s} s it accepts late posts, whose `at` is before the end"
    return PeriodClosedError(f"the leaderboard {attempt.board_id!r} {detail}", pointer=attempt.pointer)


def refuse_unopened(attempt: Attempt) -> PostError | None:
    assert attempt.gate is not None
    if attempt.gate.opens_us is None or attempt.at_us >= attempt.gate.opens_us:
        return None
    if attempt.joins:
        opens = format_time(attempt.gate.opens_us)
        return NotOpenError(f"the leaderboard {attempt.board_id!r} opens at {opens}; join it then")
    return NotOpenYetError(f"the leaderboard {attempt.board_id!r} opens after the time of the post", pointer="/at")


def refuse_before_reset(attempt: Attempt) -> PostError | None:
    if attempt.named_us is None or attempt.named_us >= attempt.reset_us:
        return None
    return BeforeResetError(f"{attempt.board_id!r} was emptied after the time of the post", pointer="/at")


def refuse_entrant(attempt: Attempt) -> PostError | None:
    rules, board = attempt.entry, attempt.board_id
    assert rules is not None
    if not attempt.is_entrant and rules.join and not attempt.joins:
        return NotJoinedError(f"the owner has not joined the leaderboard {board!r}", pointer="/owner")
    if not attempt.is_entrant and rules.owners_max is not None and attempt.owners >= rules.owners_max:
        detail = f"the leaderboard {board!r} is full: it has {rules.owners_max} owners"
        return BoardFullError(detail, pointer="/owner")
    if rules.posts_max is not None and attempt.posts >= rules.posts_max and not attempt.joins:
        detail = f"the owner has made {attempt.posts} of {rules.posts_max} posts to the leaderboard {board!r}"
        return NoPostsLeftError(detail, pointer="/owner")
    return None


def refuse_beyond(attempt: Attempt) -> PostError | None:
    columns, held = dict(attempt.limited), None
    for change in attempt.changes:
        column = columns.get(change.index)
        if column is None or column.limits is None or change.overwrite or not isinstance(change.value, int):
            continue
        gained = sum_recent(attempt.gains or {}, change.index, attempt.now_us)
        if (detail := _describe_breach(column, column.limits, change.value, gained)) is None:
            continue
        if not column.limits.holds:
            return PostLimitError(detail, pointer=f"/stats/{column.name}")
        held = held or _hold(attempt, detail)
    return held


def _describe_breach(column: ColumnSpec, limits: PostLimits, value: int, gained: int) -> str | None:
    shown = format_decimal(value, column.scale)
    if limits.least_scaled is not None and value < limits.least_scaled:
        return f"{column.name}: {shown} is less than post_min, {format_decimal(limits.least_scaled, column.scale)}"
    if limits.most_scaled is not None and value > limits.most_scaled:
        return f"{column.name}: {shown} is more than post_max, {format_decimal(limits.most_scaled, column.scale)}"
    if limits.gain_scaled is not None and 0 < value > limits.gain_scaled - gained:
        most, before = (format_decimal(each, column.scale) for each in (limits.gain_scaled, gained))
        return f"{column.name}: {shown} after {before} in the last hour is more than gain_per_hour_max, {most}"
    return None


def refuse_suspected(attempt: Attempt) -> PostError | None:
    return _hold(attempt, "the post asks for it")


def _hold(attempt: Attempt, why: str) -> PostError:
    if attempt.held < HELD_POSTS_MAX:
        return PostHeldError(why)
    return PostLimitError(f"{why}, and the leaderboard already holds {attempt.held} posts for review, its limit")


RULES = (
    Rule(refuse_future, "ahead_s_max"),
    Rule(refuse_voided, "known"),
    Rule(refuse_taken_id, "known"),
    Rule(refuse_merged, "is_merged"),
    Rule(refuse_deleted, "deleted"),
    Rule(refuse_emptied, "is_emptied"),
    Rule(refuse_closed, "gate"),
    Rule(refuse_unopened, "gate"),
    Rule(refuse_before_reset, "reset_us"),
    Rule(refuse_entrant, "entry"),
    Rule(refuse_beyond, "limited"),
    Rule(refuse_suspected, "asks_hold"),
)


def list_rules(attempt: Attempt) -> list[Rule]:
    return [rule for rule in RULES if getattr(attempt, rule.given)]


def find_refusal(attempt: Attempt) -> PostError | None:
    for rule in list_rules(attempt):
        if (error := rule.refuse(attempt)) is not None:
            return error
    return None


def find_closure(
    post: Post, now_us: int, judged: dict[tuple[int, int | None], PostError | None] | None = None
) -> PostError | None:
    """Return an error if, as far as this process knows, every board refuses the post. Otherwise return None.

    `judged`: results for other posts at `now_us`, by leaf key and time of the post. This function adds its own.
    """
    if post.scope is not None:
        detail = "every period of the post is closed. A post without `at` reaches the periods that are open now"
        return None if post.parts else PeriodClosedError(detail, pointer="/at")
    judged, error = {} if judged is None else judged, None
    for part in post.parts:
        leaf, key = part.leaf, (part.leaf.key, post.at_us)
        if key not in judged:
            judged[key] = find_refusal(Attempt(post.at_us, now_us, leaf.id, gate=leaf.gate))
        error = judged[key]
        if error is None:
            return None
    return error
