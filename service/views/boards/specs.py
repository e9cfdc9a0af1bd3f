"""Translates leaderboard specifications: checks those that arrive, and shows those that are stored.

A contradiction that is found here is a 422 for the author. If it were found later, it would be a broken board for
everybody.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.context import Context
from service.contract.problems import ProblemError
from service.contract.requests import (
    REWARD_DATA_BYTES_MAX,
    TIE_COLUMNS_MAX,
    BoardBody,
    ColumnBody,
    EntryBody,
    PutBoard,
    RewardBody,
    TierBody,
    TiesSent,
)
from service.contract.responses.boards import ColumnAnswer, TiesShown
from service.contract.values import format_us, parse_decimal, to_micros, to_wire_number
from storage.errors import SpecInvalidError
from storage.log.quotients import name_timer
from storage.records import (
    INT64_MAX,
    Best,
    BoardSpec,
    ColumnKind,
    ColumnSpec,
    Each,
    EntryRules,
    Merge,
    PostLimits,
    PredictorSpec,
    RefreshMethod,
    Rewards,
    RewardSpec,
    Season,
    TierSpec,
    Ties,
    format_decimal,
)

# By default, a column takes values from minus this number to this number. If the column's scale is too great for these
# numbers to fit into 64 bits, the default range is the widest one that fits.
DEFAULT_LIMIT_UNITS = 10**15
NO_DATA = b"{}"


def make_season(body: PutBoard) -> Season | None:
    """Make a board's season, which says when the board opens and closes. Return None if the body has neither time.

    Raises:
        SpecInvalidError: the times contradict each other.
    """
    opens_us = None if body.opens_at is None else to_micros(body.opens_at)
    ends_us = None if body.closes_at is None else to_micros(body.closes_at)
    if body.rewards and ends_us is None:
        detail = "rewards need closes_at: they are granted when the leaderboard closes"
        raise SpecInvalidError(detail, pointer="/rewards")
    if opens_us is None and ends_us is None:
        if body.keep_seconds is not None:
            raise SpecInvalidError(
                "keep_seconds needs closes_at: a leaderboard that never closes keeps its rows", pointer="/keep_seconds"
            )
        return None
    if opens_us is not None and ends_us is not None and not opens_us < ends_us:
        raise SpecInvalidError("opens_at must be before closes_at", pointer="/closes_at")
    return Season(opens_us, ends_us, body.grace_seconds, body.keep_seconds)


def make_rewards(
    sent: Sequence[RewardBody], each: Each, columns: Sequence[ColumnSpec], at: str = "/rewards"
) -> Rewards | None:
    """Make the rewards of a board with these columns, or return None if there are none.

    `at` is the place of the rewards in the body, for error messages.

    Raises:
        SpecInvalidError: a name is given twice, a column is not ranked, or a reward has not exactly one limit.
        ProblemError: `to_value` is not a value that the column can have.
    """
    by_name = {column.name: column for column in columns if column.sorted}
    found: list[RewardSpec] = []
    for number, body in enumerate(sent):
        here = f"{at}/{number}"
        if any(body.name == earlier.name for earlier in found):
            raise SpecInvalidError(f"reward {body.name!r} is given twice", pointer=f"{here}/name")
        if (column := by_name.get(body.column)) is None:
            raise SpecInvalidError(f"{body.column!r} is not a ranked column", pointer=f"{here}/column")
        data = NO_DATA if body.data is UNSET else msgspec.json.format(bytes(body.data), indent=-1)
        if not data.startswith(b"{") or len(data) > REWARD_DATA_BYTES_MAX:
            detail = f"data is a JSON object of at most {REWARD_DATA_BYTES_MAX} bytes"
            raise SpecInvalidError(detail, pointer=f"{here}/data")
        bounds = column.scale, column.min_scaled, column.max_scaled
        limits = _find_limit(body, "reward", "to_value", column.name, bounds, here)
        found.append(RewardSpec(body.name, body.column, *limits, data.decode()))
    return Rewards(tuple(found), each) if found else None


def show_rewards(rewards: Rewards, columns: Sequence[ColumnSpec]) -> list[RewardBody]:
    scales = {column.name: column.scale for column in columns}
    return [
        RewardBody(
            name=each.name,
            column=each.column,
            to_rank=each.to_rank or UNSET,
            to_percent=each.to_percent or UNSET,
            to_value=_show_value(each.value_scaled, scales[each.column]),
            data=UNSET if (data := each.data.encode()) == NO_DATA else Raw(data),
        )
        for each in rewards.listed
    ]


def _show_value(scaled: int | None, scale: int) -> Raw | UnsetType:
    return UNSET if scaled is None else Raw(format_decimal(scaled, scale).encode())


def make_spec(body: BoardBody, context: Context) -> BoardSpec:
    """Make the specification of a board or a family, with every default filled in.

    Raises:
        SpecInvalidError: parts of the specification contradict each other.
        ProblemError: a `min` or `max` is not a number, or the column can't store it.
    """
    names = [column.name for column in body.columns]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise SpecInvalidError(f"column {name!r} is given twice", pointer=f"/columns/{index}/name")
    columns = tuple(_column(column, index) for index, column in enumerate(body.columns))
    for index, column in enumerate(columns):
        _check_followed(column, columns, f"/columns/{index}/of")
        _check_quotient(column, columns, f"/columns/{index}")
    ties, tie_columns = _ties(body.ties, columns)
    if ties is Ties.EARLIEST:
        columns = _keep_times(columns)
    settings = context.settings
    refresh_seconds = int(settings.default_refresh_seconds)
    defaults = PredictorSpec(settings.default_samples, settings.default_exact_top, refresh_seconds, RefreshMethod.AUTO)
    chosen = {name: value for name, value in msgspec.structs.asdict(body.predictor).items() if value is not UNSET}
    return BoardSpec(
        columns=columns,
        ties=ties,
        tie_columns=tie_columns,
        predictor=replace(defaults, **chosen),
        table=body.table,
        segments=body.segments,
        entry=None if body.entry is None else _entry(body.entry),
    )


def _entry(body: EntryBody) -> EntryRules:
    posts_max, owners_max = (None if each is UNSET else each for each in (body.posts_max, body.owners_max))
    if not body.join and posts_max is None and owners_max is None:
        raise SpecInvalidError("entry has join, posts_max or owners_max", pointer="/entry")
    return EntryRules(body.join, posts_max, owners_max)


def _column(body: ColumnBody, index: int) -> ColumnSpec:
    at = f"/columns/{index}"
    of = None if body.of is UNSET else body.of
    per, per_least = _divisor(body, at)
    ranked = body.type is ColumnKind.NUMBER and body.merge is not Merge.WITH if body.sorted is UNSET else body.sorted
    if body.tiers and not ranked:
        raise SpecInvalidError("only a ranked column has tiers", pointer=f"{at}/tiers")
    best = (Best.LOW if body.merge is Merge.MIN else Best.HIGH) if body.best is UNSET else body.best
    if body.type is ColumnKind.TEXT:
        _check_text(body, ranked=ranked, at=at)
        return ColumnSpec(body.name, False, body.merge, best, body.type, 0, 0, 0, of)
    least, most = _range(body, at)
    tiers = _tiers(body, least, most, at=f"{at}/tiers")
    return ColumnSpec(
        name=body.name,
        sorted=ranked,
        merge=body.merge,
        best=best,
        kind=body.type,
        scale=body.scale,
        min_scaled=least,
        max_scaled=most,
        of=of,
        tiers=tiers,
        per=per,
        per_least=per_least,
        limits=_limits(body, at),
    )


def _limits(body: ColumnBody, at: str) -> PostLimits | None:
    names = "post_min", "post_max", "gain_per_hour_max"
    sent = [(name, limit) for name in names if (limit := getattr(body, name)) is not UNSET]
    limits = {name: parse_decimal(limit, body.scale, pointer=f"{at}/{name}") for name, limit in sent}
    least, most, gain = map(limits.get, names)
    if not limits:
        if body.on_breach is not UNSET:
            raise SpecInvalidError("on_breach needs a limit: post_min, post_max or gain_per_hour_max", pointer=at)
        return None
    if body.merge is Merge.QUOTIENT:
        raise SpecInvalidError("a quotient has no limits of posts: nobody posts it", pointer=at)
    if least is not None and most is not None and least > most:
        raise SpecInvalidError("post_min must be at most post_max", pointer=f"{at}/post_min")
    if gain is not None and (body.merge is not Merge.SUM or gain <= 0):
        detail = "only a column that merges by sum has gain_per_hour_max, which is above 0"
        raise SpecInvalidError(detail, pointer=f"{at}/gain_per_hour_max")
    return PostLimits(least, most, gain, body.on_breach == "hold")


def _divisor(body: ColumnBody, at: str) -> tuple[str | None, int]:
    """Find the name and the least value of the column that a quotient divides by. There is none for other columns."""
    if (body.merge is Merge.QUOTIENT) != (body.per is not UNSET) or (body.from_ is not UNSET and body.per is UNSET):
        raise SpecInvalidError(
            "a column has `per` if and only if it merges by quotient; then it may have `from`", pointer=at
        )
    return (None, 0) if body.per is UNSET else (body.per, 1 if body.from_ is UNSET else body.from_)


def _check_text(body: ColumnBody, *, ranked: bool, at: str) -> None:
    if not all(each is UNSET for each in (body.post_min, body.post_max, body.gain_per_hour_max, body.on_breach)):
        raise SpecInvalidError("a text column has no limits of posts", pointer=at)
    if ranked or body.merge not in (Merge.LAST, Merge.WITH):
        raise SpecInvalidError("a text column can't be sorted and merges by last or with", pointer=at)
    if body.scale or body.min is not UNSET or body.max is not UNSET:
        raise SpecInvalidError("a text column has no scale, min or max", pointer=at)


def _range(body: ColumnBody, at: str) -> tuple[int, int]:
    limit = min(DEFAULT_LIMIT_UNITS * 10**body.scale, INT64_MAX)
    least = -limit if body.min is UNSET else parse_decimal(body.min, body.scale, pointer=f"{at}/min")
    most = limit if body.max is UNSET else parse_decimal(body.max, body.scale, pointer=f"{at}/max")
    if not least < most:  # both fit into 64 bits: `parse_decimal` has checked that
        raise SpecInvalidError("min must be less than max", pointer=f"{at}/min")
    return least, most


def _tiers(body: ColumnBody, least: int, most: int, *, at: str) -> tuple[TierSpec, ...]:
    names = [tier.name for tier in body.tiers]
    found = []
    for number, tier in enumerate(body.tiers):
        if tier.name in names[:number]:
            raise SpecInvalidError(f"tier {tier.name!r} is given twice", pointer=f"{at}/{number}/name")
        bounds = body.scale, least, most
        found.append(TierSpec(tier.name, *_find_limit(tier, "tier", "value", body.name, bounds, f"{at}/{number}")))
    return tuple(found)


def _find_limit(
    body: TierBody | RewardBody, what: str, value_name: str, column: str, bounds: tuple[int, int, int], at: str
) -> tuple[int | None, float | None, int | None]:
    """Find the limit of a tier or a reward: a rank, a percentage or a scaled value. The other two are None.

    `bounds` has the column's scale, its smallest and its largest value.
    """
    names = "to_rank", "to_percent", value_name
    sent: dict[str, Any] = {name: limit for name in names if (limit := getattr(body, name)) is not UNSET}
    if value_name in sent:
        scale, least, most = bounds
        sent[value_name] = value = parse_decimal(sent[value_name], scale, pointer=f"{at}/{value_name}")
        if not least <= value <= most:
            detail = f"the {what}'s value is outside the range of {column!r}"
            raise ProblemError("value_out_of_range", detail, pointer=f"{at}/{value_name}")
    if len(sent) != 1:
        detail = f"a {what} has one of to_rank, to_percent and {value_name}, not {len(sent) or 'none'} of them"
        raise SpecInvalidError(detail, pointer=at)
    return sent.get("to_rank"), sent.get("to_percent"), sent.get(value_name)


def _check_followed(column: ColumnSpec, columns: Sequence[ColumnSpec], at: str) -> None:
    if (column.merge in (Merge.WITH, Merge.QUOTIENT)) != (column.of is not None):
        raise SpecInvalidError("a column has `of` if and only if it merges by with or quotient", pointer=at)
    if column.merge is not Merge.WITH:
        return
    followed = next((each for each in columns if each.name == column.of), None)
    if followed is None or followed.kind is ColumnKind.TEXT or followed.merge in (Merge.WITH, Merge.QUOTIENT):
        raise SpecInvalidError(f"{column.of!r} is not a column of numbers that can be followed", pointer=at)
    if column.sorted:
        raise SpecInvalidError("a column that follows another one can't be sorted", pointer=at)


def _check_quotient(column: ColumnSpec, columns: Sequence[ColumnSpec], at: str) -> None:
    if column.merge is not Merge.QUOTIENT:
        return
    numbers = {each.name: each for each in columns if each.kind is ColumnKind.NUMBER and each.merge is not column.merge}
    for member, name in (("of", column.of), ("per", column.per)):
        if name not in numbers or (member == "per" and name == column.of):
            detail = f"{name!r}: a quotient is of two different columns of numbers, none of them a quotient"
            raise SpecInvalidError(detail, pointer=f"{at}/{member}")
    per = numbers[str(column.per)]
    if column.per_least * 10**per.scale > per.max_scaled:
        raise SpecInvalidError(f"from must be a value that {per.name!r} can have", pointer=f"{at}/from")


def _keep_times(columns: Sequence[ColumnSpec]) -> tuple[ColumnSpec, ...]:
    """Make unranked columns keep the times that are needed to find the time of a ranked quotient."""
    by_name = {column.name: column for column in columns}
    quotients = [column for column in columns if column.sorted and column.merge is Merge.QUOTIENT]
    timers = {name_timer(by_name[name]) for each in quotients for name in (each.of, each.per) if name is not None}
    return tuple(replace(each, keeps_time=not each.sorted and each.name in timers) for each in columns)


def _ties(ties: TiesSent, columns: Sequence[ColumnSpec]) -> tuple[Ties, tuple[str, ...]]:
    if isinstance(ties, Ties):
        return ties, ()
    timed = ties[-1] == Ties.EARLIEST
    names = tuple(ties[:-1] if timed else ties)
    numeric = {column.name for column in columns if column.kind is ColumnKind.NUMBER}
    for index, name in enumerate(names):
        if name not in numeric or name in names[:index] or index >= TIE_COLUMNS_MAX:
            detail = f"{name!r}: ties lists up to {TIE_COLUMNS_MAX} different columns of numbers, then perhaps earliest"
            raise SpecInvalidError(detail, pointer=f"/ties/{index}")
    return Ties.EARLIEST if timed else Ties.SHARED, names


def show_column(column: ColumnSpec) -> ColumnAnswer:
    text = column.kind is ColumnKind.TEXT
    return ColumnAnswer(
        name=column.name,
        sorted=column.sorted,
        merge=column.merge,
        best=column.best,
        scale=column.scale,
        min=None if text else to_wire_number(column.min_scaled, column.scale),
        max=None if text else to_wire_number(column.max_scaled, column.scale),
        type=column.kind,
        of=column.of or UNSET,
        per=column.per or UNSET,
        from_=column.per_least or UNSET,
        tiers=show_tiers(column),
        **_show_limits(column),
    )


def _show_limits(column: ColumnSpec) -> dict[str, Any]:
    if (limits := column.limits) is None:
        return {}
    least, most, gain = (
        UNSET if each is None else to_wire_number(each, column.scale)
        for each in (limits.least_scaled, limits.most_scaled, limits.gain_scaled)
    )
    on_breach = "hold" if limits.holds else "reject"
    return {"post_min": least, "post_max": most, "gain_per_hour_max": gain, "on_breach": on_breach}


def show_tiers(column: ColumnSpec) -> list[TierBody] | UnsetType:
    return [
        TierBody(
            name=tier.name,
            to_rank=tier.to_rank or UNSET,
            to_percent=tier.to_percent or UNSET,
            value=_show_value(tier.value_scaled, column.scale),
        )
        for tier in column.tiers
    ] or UNSET


def show_ties(spec: BoardSpec) -> TiesShown:
    if not spec.tie_columns:
        return spec.ties
    return [*spec.tie_columns, *([spec.ties] if spec.ties is Ties.EARLIEST else [])]


def show_entry(rules: EntryRules | None) -> EntryBody | UnsetType:
    """Show a board's entry rules as they were sent, or UNSET if it has none."""
    if rules is None:
        return UNSET
    posts_max, owners_max = (UNSET if each is None else each for each in (rules.posts_max, rules.owners_max))
    return EntryBody(join=rules.join, posts_max=posts_max, owners_max=owners_max)


def show_season(season: Season | None) -> dict[str, Any]:
    """Show when a board opens and closes. The result is empty for a board without a season."""
    if season is None:
        return {}
    return {
        "opens_at": None if season.opens_us is None else format_us(season.opens_us),
        "closes_at": None if season.ends_us is None else format_us(season.ends_us),
        "grace_seconds": season.grace_seconds,
        "keep_seconds": season.keep_seconds,
    }
