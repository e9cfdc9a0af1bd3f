"""Programs, which contain the client's logic: they say what to do, and leave the doing to whoever runs them.

A program is a generator. It yields effects, such as `Send(…)`, and receives the outcome of each. A `SyncRunner` carries
out the effects and blocks its thread meanwhile, whereas an `AsyncRunner` awaits them. So the logic has to be written
only once:

    class Operations:
        @operation
        def entry(self, board: str, owner: str) -> Program[Entry]:
            return (yield from self.read(...))

    class Client(Operations, SyncRunner): ...         # client.entry("b", "ada") returns an Entry
    class AsyncClient(Operations, AsyncRunner): ...   # await client.entry("b", "ada") returns an Entry

A program must not yield in a `finally` block, because a caller may close it at any point.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import msgspec

if TYPE_CHECKING:
    from .transport import AsyncRunner, SyncRunner

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])
P = ParamSpec("P")


class Send(msgspec.Struct, frozen=True):
    """Send a request, and receive its `Reply`. Raises UnreachableError inside the program if no answer comes.

    `path` is percent-encoded. `repeatable` says whether the request may be sent again after its answer was lost.
    `timeout_s` limits each wait for the network, in addition to the client's own timeout. `numbered` says that the
    posts may have numbers, which belong to a player token; from the second `attempt` on, such a request is not sent
    with another token.
    """

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    repeatable: bool = True
    timeout_s: float | None = None
    numbered: bool = False
    attempt: int = 1


class Open(msgspec.Struct, frozen=True):
    """Send a request whose answer is read in chunks, and receive a `Reply` without content."""

    request: Send


class ReadChunk(msgspec.Struct, frozen=True):
    """Receive the next bytes of the opened answer, or empty bytes at its end.

    Raises UnreachableError inside the program.
    """


class Pause(msgspec.Struct, frozen=True):
    """Wait this many seconds."""

    seconds: float


class Signal(Protocol):
    """An event of `threading` or of `asyncio`."""

    def set(self) -> object: ...
    def clear(self) -> object: ...
    def is_set(self) -> bool: ...
    def wait(self, *timeout_s: Any) -> Any: ...


class Lock(Protocol):
    """A lock of `threading` or of `asyncio`."""

    def acquire(self) -> Any: ...
    def release(self) -> object: ...


class Wait(msgspec.Struct, frozen=True):
    """Wait until the signal is set, for at most `timeout_s`. Receive whether it was set."""

    signal: Signal
    timeout_s: float | None = None


class Acquire(msgspec.Struct, frozen=True):
    """Acquire a lock, which the program has to release itself."""

    lock: Lock


class Items(msgspec.Struct, Generic[T], frozen=True):
    """Hand these items to the caller of a walk."""

    items: Sequence[T]


Effect = Send | Open | ReadChunk | Pause | Wait | Acquire
Program = Generator[Effect, Any, T]
Walk = Generator[Effect | Items[T], Any, None]


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class _Method(Generic[P]):
    """Turns a program into a method of each runner class that has it, with the program's signature and docstring."""

    runs: ClassVar[str]  # the method of a runner that carries the program out
    results: ClassVar[tuple[str, str]]  # what the method returns, for both kinds of runners

    def __init__(self, program: Callable[Concatenate[Any, P], Any]) -> None:
        self._program = program
        self._methods: dict[type, Callable[..., Any]] = {}
        functools.update_wrapper(self, program)  # type: ignore[arg-type]

    def __get__(self, owner: Any, kind: type) -> Any:
        if not hasattr(kind, "run"):
            return self
        if kind not in self._methods:
            self._methods[kind] = self._make(is_async=inspect.iscoroutinefunction(kind.run))
        return self._methods[kind].__get__(owner, kind)

    def _make(self, *, is_async: bool) -> Callable[..., Any]:
        program, runs = self._program, self.runs

        def call(self: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
            return getattr(self, runs)(program(self, *arguments, **named))

        async def await_call(self: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
            return await getattr(self, runs)(program(self, *arguments, **named))

        method = functools.wraps(program)(await_call if is_async and runs == "run" else call)
        signature = inspect.signature(program)
        result = signature.return_annotation.partition("[")[2].removesuffix("]")
        method.__signature__ = signature.replace(return_annotation=self.results[is_async].format(result))  # type: ignore[attr-defined]
        return method


class operation(_Method[P], Generic[P, T]):  # noqa: N801 -- it decorates, as `property` does
    """Turn a program into a method: a plain one for a `SyncRunner`, a coroutine for an `AsyncRunner`."""

    runs, results = "run", ("{}", "{}")

    if TYPE_CHECKING:

        def __init__(self, program: Callable[Concatenate[Any, P], Program[T]]) -> None: ...
        @overload
        def __get__(self, owner: None, kind: type) -> operation[P, T]: ...
        @overload
        def __get__(self, owner: SyncRunner, kind: type) -> Callable[P, T]: ...
        @overload
        def __get__(self, owner: AsyncRunner, kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
        def __get__(self, owner: Any, kind: type) -> Any: ...


class walk(_Method[P], Generic[P, T]):  # noqa: N801
    """Turn a program into a method that returns an iterator over its `Items`, or an async iterator."""

    runs, results = "iterate", ("Iterator[{}]", "AsyncIterator[{}]")

    if TYPE_CHECKING:

        def __init__(self, program: Callable[Concatenate[Any, P], Walk[T]]) -> None: ...
        @overload
        def __get__(self, owner: None, kind: type) -> walk[P, T]: ...
        @overload
        def __get__(self, owner: SyncRunner, kind: type) -> Callable[P, Generator[T, None, None]]: ...
        @overload
        def __get__(self, owner: AsyncRunner, kind: type) -> Callable[P, AsyncGenerator[T, None]]: ...
        def __get__(self, owner: Any, kind: type) -> Any: ...


class _Making(_Method[P]):
    """Creates a plain method for each kind of runner, which returns an object of that kind's class."""

    def __init__(self, method: Callable[Concatenate[Any, P], Any], made: str) -> None:
        super().__init__(method)
        self.results = made, f"Async{made}"  # type: ignore[misc]

    def _make(self, *, is_async: bool) -> Callable[..., Any]:
        @functools.wraps(self._program)
        def method(owner: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
            return self._program(owner, *arguments, **named)

        signature = inspect.signature(self._program)
        method.__signature__ = signature.replace(return_annotation=self.results[is_async])  # type: ignore[attr-defined]
        return method


def making(made: str) -> Callable[[Method], Method]:
    """Decorate a method that creates an object: a `made` for a `SyncRunner`, an `Async…` for an `AsyncRunner`."""
    return lambda method: _Making(method, made)  # type: ignore[return-value]
