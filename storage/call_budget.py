"""What one call to a cache may cost: time and bytes, kept by its sockets.

The rule: the budget is for the whole call. A socket's own timeout starts anew with every piece that arrives, so a
server that drips bytes would hold a call for ever.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

RECV_BYTES = 256 * 1024  # pymemcache asks for 4 KiB: each piece may wait for the interpreter lock


class Budget:
    """Time and bytes that are left to the call under way."""

    def __init__(self, timeout_s: float, bytes_max: int, monotonic: Callable[[], float]) -> None:
        self._timeout_s, self._bytes_max, self._monotonic = timeout_s, bytes_max, monotonic
        self._ends_s = 0.0
        self._bytes = 0
        self.errors = 0

    def begin(self) -> None:
        """A call begins."""
        self._ends_s = self._monotonic() + self._timeout_s
        self._bytes = self._bytes_max
        self.errors = 0

    def fair(self) -> bool:
        """Whether another server can be asked: it has half of the time at least, so that being late is its fault."""
        return self._ends_s - self._monotonic() >= self._timeout_s / 2

    def left_s(self) -> float:
        """Seconds that are left. Raises TimeoutError when there are none."""
        left_s = self._ends_s - self._monotonic()
        if left_s <= 0:
            raise TimeoutError("the call took too long")
        return left_s

    def received(self, count: int) -> None:
        """Bytes have come. Raises OSError for more than any honest answer has."""
        self._bytes -= count
        if self._bytes < 0:
            raise OSError("the answer is too long")


class BudgetSocket(socket.socket):
    """A socket that keeps to a budget."""

    budget: Budget

    def connect(self, address: Any) -> None:
        self.settimeout(self.budget.left_s())
        super().connect(address)

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.settimeout(self.budget.left_s())
        super().sendall(data, flags)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        self.settimeout(self.budget.left_s())
        data = super().recv(max(bufsize, RECV_BYTES), flags)
        self.budget.received(len(data))
        return data


class BudgetSockets:
    """The module `socket` as pymemcache uses it, with sockets that keep to a budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def socket(self, *arguments: Any) -> BudgetSocket:
        made = BudgetSocket(*arguments)
        made.budget = self._budget
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)
