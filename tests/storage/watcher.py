"""An observer of stores that remembers the reports."""

from collections import Counter

from storage.engines.store_observer import StoreObserver


class Watcher(StoreObserver):
    def __init__(self) -> None:
        self.waits: list[tuple[str, str, float]] = []
        self.lent: dict[tuple[str, str], tuple[int, int, int]] = {}
        self.most_lent: Counter[tuple[str, str]] = Counter()
        self.statements: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()
        self.retries = self.abandoned = self.replaced = 0

    def connection_waited(self, pool: str, kind: str, seconds: float) -> None:
        self.waits.append((pool, kind, seconds))

    def connections_lent(self, pool: str, kind: str, lent: int, *, waiting: int, limit: int) -> None:
        self.lent[pool, kind] = lent, waiting, limit
        self.most_lent[pool, kind] = max(self.most_lent[pool, kind], lent)

    def statement_ran(self, kind: str, rows: int) -> None:
        self.statements[kind] += 1
        self.rows[kind] += rows

    def tried_again(self) -> None:
        self.retries += 1

    def read_abandoned(self) -> None:
        self.abandoned += 1

    def connection_replaced(self) -> None:
        self.replaced += 1
