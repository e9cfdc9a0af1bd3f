"""A leaderboard in plain Python that follows API.md. Tests compare a real service's answers with this leaderboard.

The class shares no code with the service. A scaled value is an integer: the value in units of the column's last decimal
place.
"""

import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

EPOCH_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
NAMES = ("é", "o'; DROP TABLE x;--", "a/b", "日本", "%00", "Ａ", "z z", "{x}", "\U0001f600", '"', "~", "Zed")


@dataclass(frozen=True)
class PlainColumn:
    name: str
    merge: str = "last"
    best: str = "high"
    scale: int = 0
    least: int = -1000
    most: int = 1000
    sorted: bool = True
    of: str | None = None  # the column that it follows

    def body(self) -> dict[str, Any]:
        return {
            "name": self.name, "merge": self.merge, "best": self.best, "scale": self.scale, "sorted": self.sorted,
            "min": self.text(self.least), "max": self.text(self.most), **({"of": self.of} if self.of else {}),
        }  # fmt: skip

    def text(self, scaled: int) -> str:
        """Return a scaled value as the decimal text that callers send."""
        return f"{Decimal(scaled).scaleb(-self.scale):f}"

    def scaled(self, value: Any) -> int:
        """Return a value from an answer as a scaled integer.

        Fail if the value has more decimal places than the column.
        """
        found = Decimal(str(value)).scaleb(self.scale)
        assert found == int(found)
        return int(found)


@dataclass(frozen=True)
class Held:
    """A value of an owner, and the time at which the owner reached it."""

    scaled: int
    reached_us: int


@dataclass
class PlainBoard:
    """A board that holds, for each owner, the values by column name."""

    columns: list[PlainColumn]
    ties: str = "shared"  # or names of tie columns, and perhaps "earliest", separated by commas
    rows: dict[str, dict[str, Held]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name = {column.name: column for column in self.columns}
        self.tie_columns = [name for name in self.ties.split(",") if name in self._by_name]
        self.timed = self.ties.endswith("earliest")
        self._keys: dict[str, dict[str, tuple[Any, ...]]] = {}  # those of `keys`, until the rows change

    @property
    def ties_sent(self) -> str | list[str]:
        return self.ties.split(",") if self.tie_columns else self.ties

    def column(self, name: str) -> PlainColumn:
        return self._by_name[name]

    def post(self, owner: str, stats: dict[str, int], at_us: int, *, overwrite: bool = False) -> str:
        stored = self.rows.get(owner, {})
        row = dict(stored)
        for name, value in stats.items():
            column, before = self.column(name), row.get(name)
            after = value
            if before is not None and not overwrite:
                choices = {"sum": before.scaled + value, "max": max(before.scaled, value), "last": value}
                after = choices.get(column.merge, min(before.scaled, value))
            if not column.least <= (value if column.merge != "sum" else after) <= column.most:
                return "rejected"
            if before is None or before.scaled != after:
                adds = before is not None and column.merge == "sum" and not overwrite and self.timed and column.sorted
                row[name] = Held(after, max(before.reached_us, at_us) if adds and before else at_us)
        timed = {column.name for column in self.columns if self.timed and column.sorted}
        for name in {column.of for column in self.columns if column.of is not None} | timed:
            self._follow(name, stored, row, stats, at_us, overwrite=overwrite)
        changed = row != self.rows.get(owner)
        self.rows[owner] = row
        self._keys.clear()
        return "applied" if changed else "unchanged"

    def erase(self, owner: str) -> None:
        del self.rows[owner]
        self._keys.clear()

    def _follow(
        self,
        name: str,
        stored: dict[str, Held],
        row: dict[str, Held],
        stats: dict[str, int],
        at_us: int,
        *,
        overwrite: bool,
    ) -> None:
        """Replace the columns that follow a column if the post improves it, and keep them otherwise."""
        followers = [column.name for column in self.columns if column.of == name]
        ties = [each for each in self.tie_columns if each in followers]
        better = row.get(name) != stored.get(name)
        if not better and not overwrite and name in stored and stats.get(name) == stored[name].scaled:
            now = {each: one.scaled for each, one in stored.items()}
            new, held = [*self._places(ties, stats)], [*self._places(ties, now)]
            if self.timed and self.column(name).sorted:
                new.append((at_us, 0))
                held.append((stored[name].reached_us, 0))
            better = self.column(name).merge in ("max", "min") and new < held
            if better:
                row[name] = Held(stored[name].scaled, at_us)
        for each in followers:
            row.pop(each, None)
            if each in stats and (better or overwrite):
                row[each] = Held(stats[each], at_us)
            elif each in stored and not better:
                row[each] = stored[each]
            if each in row and each in stored and row[each].scaled == stored[each].scaled:
                row[each] = stored[each]

    def _places(self, names: list[str], values: dict[str, int]) -> tuple[tuple[int, int], ...]:
        """Return a sort key for the values of tie columns. A missing value comes last."""
        signs = (1 if self.column(name).best == "low" else -1 for name in names)
        return tuple(
            (0, sign * values[name]) if name in values else (1, 0) for name, sign in zip(names, signs, strict=True)
        )

    def keys(self, name: str) -> dict[str, tuple[Any, ...]]:
        """Return a sort key for the rank of every ranked owner in a column. A smaller key means a better rank."""
        if name not in self._keys:
            self._keys[name] = {owner: self._key(name, owner) for owner, row in self.rows.items() if name in row}
        return self._keys[name]

    def _key(self, name: str, owner: str) -> tuple[Any, ...]:
        row = self.rows[owner]
        held, values = row[name], {each: other.scaled for each, other in row.items()}
        value = -held.scaled if self.column(name).best == "high" else held.scaled
        places = self._places([each for each in self.tie_columns if each != name], values)
        return (value, *places, *((held.reached_us, *map(ord, owner)) if self.timed else ()))

    def order(self, name: str) -> list[str]:
        """Return all ranked owners, best first. Order tied owners by the code points of their names."""
        keys = self.keys(name)
        return sorted(keys, key=lambda owner: (keys[owner], owner))

    def ranks(self, name: str) -> dict[str, int]:
        """Return the rank of every ranked owner, best first: 1 + the number of strictly better owners."""
        ranks: dict[str, int] = {}
        keys = self.keys(name)
        first: dict[tuple[Any, ...], int] = {}
        for number, owner in enumerate(self.order(name), 1):
            ranks[owner] = first.setdefault(keys[owner], number)
        return ranks

    def arrival_rank(self, name: str, scaled: int) -> int:
        """Return the rank that a new owner would get with this value."""
        sign = -1 if self.column(name).best == "high" else 1
        places = self._places([each for each in self.tie_columns if each != name], {})
        # If the earliest value wins ties, a new owner ranks below all owners with an equal value.
        arrival = (sign * scaled, *places, *((float("inf"),) if self.timed else ()))
        return 1 + sum(key < arrival for key in self.keys(name).values())

    def value(self, name: str, owner: str) -> int:
        return self.rows[owner][name].scaled


def random_board(rng: random.Random, ties: str) -> PlainBoard:
    """Return an empty board with a column for every merge rule, and with columns of both directions.

    Scales and bounds are random.
    """
    columns = []
    for index, merge in enumerate(rng.sample(["sum", "max", "min", "last"], 4)):
        spread = rng.choice([4, 30, 5000])
        least = rng.choice([0, -spread, -3 * spread])
        most = 300 * spread if merge == "sum" else spread
        least = 300 * least if merge == "sum" else least
        scale, best = rng.choice([0, 0, 2, 9]), ("high", "low")[index % 2]
        columns.append(PlainColumn(f"c_{merge}", merge, best, scale, least, most))
    columns.append(PlainColumn("plain", "sum", least=0, most=10**15, sorted=False))
    if "time" in ties:
        columns.append(PlainColumn("time", "with", "low", least=0, most=3, sorted=False, of="c_max"))
    return PlainBoard(columns, ties)


def random_posts(rng: random.Random, board: PlainBoard, owners: int, posts: int) -> list[dict[str, Any]]:
    """Make random posts and apply them to the plain board. Return the posts in the form that callers send.

    One post in ten overwrites values instead of merging.
    """
    names = [*NAMES, *(f"p{index}" for index in range(owners - len(NAMES)))]
    wire = []
    for _ in range(posts):
        owner = rng.choice(names)
        chosen = rng.sample(board.columns, rng.randint(1, len(board.columns)))
        stats = {}
        for column in chosen:
            share = 300 if column.merge == "sum" and column.sorted else 1
            stats[column.name] = rng.randint(column.least // share, min(column.most, 10**6) // share)
        at_us, overwrites = EPOCH_US + rng.randrange(40) * 1_000_000, rng.random() < 0.1
        board.post(owner, stats, at_us, overwrite=overwrites)
        texts = {name: board.column(name).text(value) for name, value in stats.items()}
        wire.append({"owner": owner, "set" if overwrites else "stats": texts, "at": _at(at_us)})
    return wire


def _at(at_us: int) -> str:
    return f"2026-01-01T00:00:{(at_us - EPOCH_US) // 1_000_000:02d}Z"
