"""What is to be done in every process of a node: each listens on a socket in the node's folder.

    exec ──> here, and to each socket ──> what each process answered, by its name

The rule: who does not answer in time is named, and keeps nobody else from doing it. The folder belongs to the user
that runs the node, and only that one can open the sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog

from jobs.origin import Origin

log = structlog.get_logger(__name__)

Action = Callable[..., Awaitable[Any]]
_SUFFIX = ".sock"
_ALONE = "process"


class _Asked(msgspec.Struct, frozen=True):
    action: str
    arguments: list[str]
    origin: str = ""


class _Said(msgspec.Struct, frozen=True):
    result: Any = None  # None: it had nothing to do
    error: str = ""


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """The bounds; each is a setting of the same name."""

    managed_wait_s_max: float


class ProcessFailed(Exception):
    """a process of the node could not do what was asked of all"""


class Channel:
    """One process' way to the others of its node; alone where it is part of none."""

    def __init__(self, actions: Mapping[str, Action], limits: ChannelLimits, *, folder: Path | None, name: str) -> None:
        self._actions, self._limits = actions, limits
        self._folder, self._name = folder, name or _ALONE

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Do what other processes ask for."""
        if self._folder is None:
            yield
            return
        path = self._folder / f"{self._name}{_SUFFIX}"
        path.unlink(missing_ok=True)  # of the process whose place this one took
        server = await asyncio.start_unix_server(self._serve, path)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)

    async def everywhere(self, action: str, *arguments: str) -> dict[str, Any]:
        """What each process answered that had something to do.

        Raises:
            ProcessFailed: in one of them it failed, or one did not answer; the others have done it.
        """
        others = self.sockets()
        asked = _Asked(action, list(arguments), Origin.current().text)
        names = [self._name, *(path.stem for path in others if path.stem != self._name)]
        said = await asyncio.gather(
            self._do(asked), *(self._ask(path, asked) for path in others if path.stem != self._name)
        )
        failed = [f"{name}: {one.error}" for name, one in zip(names, said, strict=True) if one.error]
        if failed:
            raise ProcessFailed("; ".join(failed))
        return {name: one.result for name, one in zip(names, said, strict=True) if one.result is not None}

    def sockets(self) -> list[Path]:
        """Those of all processes, its own too."""
        return [] if self._folder is None else sorted(self._folder.glob(f"*{_SUFFIX}"))

    async def _do(self, asked: _Asked) -> _Said:
        action = self._actions.get(asked.action)
        if action is None:
            return _Said()
        try:
            with Origin.of(asked.origin).restored():
                async with asyncio.timeout(self._limits.managed_wait_s_max):
                    result = await action(*asked.arguments)
                if result is not None:
                    log.info("managed_action", action=asked.action, arguments=asked.arguments)
                return _Said(result)
        except Exception as error:
            log.warning("managed_action_failed", action=asked.action, exc_info=error)
            return _Said(error=str(error) or type(error).__name__)

    async def _ask(self, path: Path, asked: _Asked) -> _Said:
        try:
            async with asyncio.timeout(self._limits.managed_wait_s_max):
                reader, writer = await asyncio.open_unix_connection(path)
                try:
                    writer.write(msgspec.json.encode(asked) + b"\n")
                    return msgspec.json.decode(await reader.readline(), type=_Said)
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
        except (FileNotFoundError, ConnectionRefusedError):
            return _Said()  # it has ended, or was killed and is about to be replaced
        except (OSError, TimeoutError, msgspec.MsgspecError) as error:
            return _Said(error=str(error) or type(error).__name__)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = msgspec.json.decode(await reader.readline(), type=_Asked)
            writer.write(msgspec.json.encode(await self._do(asked)) + b"\n")
            await writer.drain()
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("managed_request_unreadable", detail=str(error))
        finally:
            writer.close()
