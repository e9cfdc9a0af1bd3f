"""Runs a handler again if it refused a request, or answered wrongly, perhaps because a copy of a board was outdated.

Each process keeps copies of boards. If the store does not confirm a copy, the handler fails, and the boards of the
request are read again. If the only reason for a refusal is in a copy, such as a value out of range, it is confirmed
once in the same way, because the board may have been deleted and created again. Without this module, every handler
would need such retries of its own. Handlers see the ids of real boards only, because aliases of periods
(`arena:this-week`) are replaced before each try, all by the time at which the request arrived.

On Citus, a transaction over several partitions becomes visible on one node after the other. Until then, a board that is
moving may be missing in its partition but present in the catalog, so later tries come after a pause. A board is called
unknown only if the store has just said so, because other requests may remove it from this process's copy of the
catalog.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from service.context import Context
from service.contract.problems import ProblemError, problem_of
from service.contract.routes import IN_PATH, Answer, Call, NamedBoards, Route
from service.contract.values import parse_owner
from storage import errors
from storage.boards.family_ids import has_alias
from storage.histories import merged_owners
from storage.records import ShadowEntry

# The pause before each retry, which reads the boards again. After the last retry, the request fails.
PAUSES_S = (0.0, 0.05, 0.2, 0.8)
_NOT_FOUND = ("unknown_owner", "not_ranked", "no_profile", "unknown_post")


def retry_on_change(route: Route) -> Route:
    """Wrap a route, so that aliases are replaced, and its handler runs again if a copy of a board was outdated."""
    named, handler = route.named_boards, route.handler
    if named is None:
        return route
    in_path = named is IN_PATH

    @wraps(handler)
    async def handle(context: Context, call: Call) -> Answer:
        tries = None
        if not in_path or ":" in call.path["board"]:  # most requests name one board, whose id has no alias
            tries = _Tries(context, call, named)
            await tries.resolve_aliases()
        try:
            return await handler(context, call)
        except _RETRIED as error:
            try:
                return await (tries or _Tries(context, call, named)).try_again(handler, error)
            except (ProblemError, errors.StorageError) as refused:
                await raise_merged(context, call, refused)
                raise

    return replace(route, handler=handle)


def tell_merged(route: Route) -> Route:
    """Wrap a route, so that it answers `owner_merged` instead of 404 if the request names an owner who was merged.

    A route of `retry_on_change` does the same itself, but only when it fails, so that an answer takes no extra step.
    """
    handler, has_owner = route.handler, "owner" in getattr(route.query, "__struct_fields__", ())
    if route.named_boards is not None or not (has_owner or "{owner}" in route.path):
        return route

    @wraps(handler)
    async def handle(context: Context, call: Call) -> Answer:
        try:
            return await handler(context, call)
        except (ProblemError, errors.StorageError) as error:
            await raise_merged(context, call, error)
            raise

    return replace(route, handler=handle)


async def raise_merged(context: Context, call: Call, error: ProblemError | errors.StorageError) -> None:
    """Raise `OwnerMergedError` if a request found nothing because its owner was merged into another one."""
    owner = call.path.get("owner") or getattr(call.query, "owner", None)
    if owner is not None and problem_of(error).code in _NOT_FOUND:
        await context.store.read(lambda: merged_owners.check_not_merged(parse_owner(owner)))


class _Tries:
    def __init__(self, context: Context, call: Call, named: NamedBoards) -> None:
        self._context, self._call, self._named = context, call, named
        self._sent = named.list_ids(call)
        self._pauses_s = iter(PAUSES_S)
        self._confirmed = too_many = len(self._sent) > context.settings.query_values_max + 1  # the handler refuses them
        self._now_us = context.now_us() if not too_many and any(map(has_alias, self._sent)) else 0

    async def resolve_aliases(self) -> None:
        if self._now_us:
            found = await self._context.catalog.resolve_aliases(self._sent, self._now_us)
            self._call.has_alias = found != list(self._sent)
            self._named.replace_ids(self._call, found)

    async def try_again(self, handler: Callable[[Any, Call], Awaitable[Answer]], error: Exception) -> Answer:
        """Confirm the copies and call the handler again, until it answers or a refusal is confirmed."""
        while True:
            step = next(step for kinds, step in _STEPS if isinstance(error, kinds))
            await step(self, error)
            await self._context.catalog.confirm([*self._named.list_ids(self._call), *self._call.other_boards])
            await self.resolve_aliases()
            try:
                return await handler(self._context, self._call)
            except _RETRIED as again:
                error = again

    async def _tell_hidden(self, error: Exception) -> None:
        """Raise the error, or one that says that the owner was not found because it is hidden or has only joined."""
        owner = self._call.path.get("owner")
        if owner is not None and "board" in self._call.path:
            board = await self._context.catalog.find_board(self._call.path["board"])
            unseen = (await self._context.reads.find_hidden(board, [owner])).get(owner)
            if isinstance(unseen, ShadowEntry):  # its row was moved while the handler looked for it
                return await self._pause(error)
            if unseen is not None:
                raise errors.NotRankedError(f"{owner!r} is hidden") from None
            if await self._context.reads.find_joined(board, [owner]):
                raise errors.NotRankedError(f"{owner!r} has joined, and has no value yet") from None
        raise error

    async def _check_unknown(self, error: Exception) -> None:
        """Raise the error if the store says that a board is unknown. Otherwise pause as after a change."""
        ids = self._named.list_ids(self._call)
        if len(ids) > 1 and not self._confirmed:  # another board may be a better reason to refuse the request
            self._confirmed = True
            return
        for each in ids:
            if self._context.catalog.find_known(each) is None:  # another request may have forgotten the board
                board = await self._context.catalog.reread_board(each)  # raises an error if there is none
                if board.is_unreached:
                    raise error
        await self._pause(errors.BoardChangedError())

    async def _pause(self, error: Exception) -> None:
        if (pause_s := next(self._pauses_s, None)) is None:  # the catalog still has the boards
            raise error
        await asyncio.sleep(pause_s)

    async def _confirm_once(self, error: Exception) -> None:
        if self._confirmed:
            raise error
        self._confirmed = True


_STEPS: Sequence[tuple[tuple[type[Exception], ...], Callable[[_Tries, Exception], Awaitable[None]]]] = (
    ((errors.UnknownOwnerError,), _Tries._tell_hidden),
    # Running the handler again is safe: a transaction that raises one of these errors is rolled back.
    ((errors.UnknownBoardError,), _Tries._check_unknown),
    ((errors.BoardChangedError,), _Tries._pause),
    (
        (ProblemError, errors.PostError, errors.ArchivedError, errors.BadCursorError, errors.UnknownPostError),
        _Tries._confirm_once,
    ),
)
_RETRIED = tuple(kind for kinds, _ in _STEPS for kind in kinds)
