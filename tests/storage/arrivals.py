"""Histories of posts whose order of arrival must not matter, and a model of them that knows no order.

Boards end their ties with `earliest`. The model looks at all posts of an owner at once: for `max` and `min` the best
run and the earliest time of it, for `sum` the total and the latest time, for quotients the later time of both columns.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from storage.log.cells import Cell, Padding
from storage.log.merging import Merger
from storage.records import Best, BoardSpec, ColumnChange, Merge, StatValue, Ties
from tests.storage.deployment import counter, keep_times, label, quotient, ranked, spec

COLUMNS = (
    ranked("score", merge=Merge.MAX, min_scaled=0, max_scaled=99),
    counter("time", best=Best.LOW, of="score"),
    label("replay", of="score"),
    ranked("lap", merge=Merge.MIN, best=Best.LOW, min_scaled=-9, max_scaled=9),
    ranked("xp", min_scaled=-1_000, max_scaled=1_000),
    ranked("debt", best=Best.LOW, min_scaled=-1_000, max_scaled=1_000),
    counter("level", merge=Merge.MAX),
    counter("hits"),
    counter("shots"),
    quotient("accuracy", "hits", "shots", least=3, scale=1, min_scaled=-999, max_scaled=999),
    quotient("pace", "level", "lap", best=Best.LOW, min_scaled=-999, max_scaled=999),
)
TIE_COLUMNS = ((), ("time",), ("level",), ("time", "level"), ("xp", "time"), ("accuracy", "time"))
OWNERS = ("ada", "bob", "eve", "ÿ", "漢")
RANKED = [index for index, column in enumerate(COLUMNS) if column.sorted]
Standing = list[tuple[str, StatValue, int]]  # owner, value, and when it was reached, best first
Standings = dict[int, Standing]  # by the index of a ranked column


@dataclass(frozen=True)
class SentPost:
    owner: str
    stats: Mapping[str, StatValue]
    at_us: int

    @property
    def changes(self) -> list[ColumnChange]:
        names = [column.name for column in COLUMNS]
        return [ColumnChange(names.index(name), value, False) for name, value in self.stats.items()]


def draw_board(rng: random.Random) -> BoardSpec:
    return keep_times(spec(*COLUMNS, ties=Ties.EARLIEST, tie_columns=rng.choice(TIE_COLUMNS)))


def draw_history(rng: random.Random, now_us: int = 100) -> list[SentPost]:
    posts = []
    for _ in range(rng.randrange(2, 14)):
        run: dict[str, StatValue] = {"score": rng.randrange(3), "time": rng.randrange(3)}
        values: dict[str, StatValue] = {"lap": rng.randrange(-1, 2), "level": rng.randrange(2)}
        values |= {name: rng.choice((-1, 1, 2)) for name in ("xp", "debt", "hits", "shots")}
        stats = {name: values[name] for name in rng.sample(list(values), rng.randrange(3))}
        at_us = now_us - rng.randrange(20)
        if rng.random() < 0.5 or not stats:
            run["replay"] = f"{run['score']} in {run['time']} at {at_us}"
            stats |= run if rng.random() < 0.9 else {"score": run["score"]}
        posts.append(SentPost(rng.choice(OWNERS), stats, at_us))
    return posts


def expect_standings(board: BoardSpec, posts: list[SentPost]) -> Standings:
    """Return each ranking from all posts, in no order."""
    found: Standings = {}
    for index in RANKED:
        places = []
        for owner in {post.owner for post in posts}:
            theirs = [post for post in posts if post.owner == owner]
            if (reached := _reach(board, index, theirs)) is not None:
                value, reached_us = reached
                sign = -1 if COLUMNS[index].best is Best.HIGH else 1
                places.append(((sign * value, _ties(board, index, theirs), reached_us, owner), value))
        found[index] = [(place[3], value, place[2]) for place, value in sorted(places)]
    return found


def _reach(board: BoardSpec, index: int, posts: list[SentPost]) -> tuple[int, int] | None:
    """Return an owner's value and when it was reached, or None if there is no value."""
    column = COLUMNS[index]
    if column.merge is Merge.QUOTIENT:
        names = [each.name for each in COLUMNS]
        of, per = (_reach(board, names.index(str(name)), posts) for name in (column.of, column.per))
        if of is None or per is None or per[0] < column.per_least:
            return None
        return round(Fraction(of[0], per[0]) * 10**column.scale), max(of[1], per[1])
    sent = [post for post in posts if column.name in post.stats]
    if not sent:
        return None
    values = [_number(post.stats[column.name]) for post in sent]
    if column.merge is Merge.SUM:
        return sum(values), max(post.at_us for post in sent)
    best = max(values) if column.merge is Merge.MAX else min(values)
    runs = [post for post in sent if post.stats[column.name] == best]
    if column.name == "score" and "time" in board.tie_columns:
        runs = [post for post in runs if _run_time(post) == min(map(_run_time, runs))]
    return best, min(post.at_us for post in runs)


def _ties(board: BoardSpec, index: int, posts: list[SentPost]) -> list[int]:
    """Return what the tie columns hold, smaller numbers first. Numbers that no column holds stand for no value."""
    held = []
    for name in board.tie_columns:
        number = [column.name for column in COLUMNS].index(name)
        if number == index:
            continue
        if name == "time":
            sent = [post for post in posts if "score" in post.stats]
            best = max([_number(post.stats["score"]) for post in sent], default=0)
            runs = [_run_time(post) for post in sent if post.stats["score"] == best]
            held.append(min(runs, default=10**6))
        else:
            reached = _reach(board, number, posts)
            held.append(10**6 if reached is None else -reached[0])
    return held


def _run_time(post: SentPost) -> int:
    return _number(post.stats.get("time", 10**6))


def _number(value: StatValue) -> int:
    assert isinstance(value, int)
    return value


def standings_of(board: BoardSpec, rows: Mapping[str, list[Cell]]) -> Standings:
    """Return each ranking of these rows, which are lists of cells by owner."""
    found: Standings = {}
    for index in RANKED:
        padding = Padding(board, COLUMNS[index])
        cells = [(padding.key_of_cell(cell), owner, cell) for owner, row in rows.items() if (cell := _text(row[index]))]
        found[index] = [
            (owner, padding.decode_value(cell), padding.reached_us(cell)) for _, owner, cell in sorted(cells)
        ]
    return found


def _text(cell: Cell) -> str | None:
    assert cell is None or isinstance(cell, str)
    return cell


def merge_posts(board: BoardSpec, posts: list[SentPost]) -> dict[str, list[Cell]]:
    """Merge posts in this order. Return the owners' rows."""
    merger, rows = Merger(board), dict[str, list[Cell]]()
    for post in posts:
        changed = merger.merge_changes(rows.get(post.owner), post.changes, post.at_us)
        row = rows.setdefault(post.owner, [None] * len(COLUMNS))
        for index, cell in changed.items():
            row[index] = cell
    return rows


def check_orders(rng: random.Random) -> None:
    """Let one history arrive in two orders, and compare both results with the model."""
    board, posts = draw_board(rng), draw_history(rng)
    for _ in range(2):
        rng.shuffle(posts)
        rows = merge_posts(board, posts)
        assert standings_of(board, rows) == expect_standings(board, posts), (board.tie_columns, posts)
        for row in rows.values():
            if isinstance(replay := row[2], str):
                assert replay.split()[0] == str(Padding(board, COLUMNS[0]).decode_value(str(row[0])))
                reached_us = Padding(board, COLUMNS[0]).reached_us(str(row[0]))
                assert replay.split()[-1] == str(reached_us), "columns that follow are those of the earliest run"
