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

    def body(self) -> dict[str, Any]:
        return {
            "name": self.name, "merge": self.merge, "best": self.best, "scale": self.scale, "sorted": self.sorted,
            "min": self.text(self.least), "max": self.text(self.most),
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
    ties: str = "shared"
    rows: dict[str, dict[str, Held]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name = {column.name: column for column in self.columns}

    def column(self, name: str) -> PlainColumn:
        return self._by_name[name]

    def post(self, owner: str, stats: dict[str, int], at_us: int, *, overwrite: bool = False) -> str:
        row = dict(self.rows.get(owner, {}))
        for name, value in stats.items():
            column, before = self.column(name), row.get(name)
            after = value
            if before is not None and not overwrite:
                choices = {"sum": before.scaled + value, "max": max(before.scaled, value), "last": value}
                after = choices.get(column.merge, min(before.scaled, value))
            if not column.least <= (value if column.merge != "sum" else after) <= column.most:
                return "rejected"
            if before is None or before.scaled != after:
                row[name] = Held(after, at_us)
        changed = row != self.rows.get(owner)
        self.rows[owner] = row
        return "applied" if changed else "unchanged"

    def key(self, name: str, owner: str) -> tuple[int, ...]:
        """Return a sort key for the owner's rank in a column. A smaller key means a better rank."""
        held = self.rows[owner][name]
        value = -held.scaled if self.column(name).best == "high" else held.scaled
        return (value,) if self.ties == "shared" else (value, held.reached_us, *map(ord, owner))

    def order(self, name: str) -> list[str]:
        """Return all ranked owners, best first. Order tied owners by the code points of their names."""
        ranked = [owner for owner, row in self.rows.items() if name in row]
        return sorted(ranked, key=lambda owner: (self.key(name, owner), owner))

    def ranks(self, name: str) -> dict[str, int]:
        """Return the rank of every ranked owner, best first: 1 + the number of strictly better owners."""
        ranks: dict[str, int] = {}
        first: dict[tuple[int, ...], int] = {}
        for number, owner in enumerate(self.order(name), 1):
            ranks[owner] = first.setdefault(self.key(name, owner), number)
        return ranks

    def arrival_rank(self, name: str, scaled: int) -> int:
        """Return the rank that a new owner would get with this value."""
        sign = -1 if self.column(name).best == "high" else 1
        taken = [sign * row[name].scaled for row in self.rows.values() if name in row]
        # If the earliest value wins ties, a new owner ranks below all owners with an equal value.
        return 1 + sum(each < sign * scaled or (self.ties == "earliest" and each == sign * scaled) for each in taken)

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
