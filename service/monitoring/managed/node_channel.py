"""The channel between the processes of one node. It runs an action in all of them and collects the results.

    exec ──> run here, and send to each socket ──> results by the names of the processes

Every process listens on a socket in the node's folder. If a process does not answer in time, the error names it, and
all other processes still run the action. Only the user that runs the node can open the sockets.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog

from config.settings import ManagedSettings
from jobs.request_origin import RequestOrigin
from service.telemetry.metrics.node import NodeMember

log = structlog.get_logger(__name__)

Action = Callable[..., Awaitable[Any]]
_SUFFIX = ".sock"
_ALONE = "process"


class _ActionRequest(msgspec.Struct, frozen=True):
    action: str
    arguments: list[str]
    origin: str = ""


class _ActionResult(msgspec.Struct, frozen=True):
    result: Any = None  # None if the process had nothing to do
    error: str = ""


class ProcessFailedError(Exception):
    """A process of the node failed to run an action that all processes were to run."""


class NodeChannel:
    """Connects one process to the others of its node. Without a node, the process has no others."""

    def __init__(self, actions: Mapping[str, Action], limits: ManagedSettings, node: NodeMember | None) -> None:
        self._actions, self._limits = actions, limits
        self._folder = None if node is None else node.folder
        self._name = _ALONE if node is None else node.name

    @asynccontextmanager
    async def listen_for_actions(self) -> AsyncIterator[None]:
        """Listen within the block, and run the actions that other processes request."""
        if self._folder is None:
            yield
            return
        path = self._folder / f"{self._name}{_SUFFIX}"
        path.unlink(missing_ok=True)  # an earlier process of the same name may have left its socket
        server = await asyncio.start_unix_server(self._serve, path)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)

    async def run_everywhere(self, action: str, *arguments: str) -> dict[str, Any]:
        """Run an action in every process of the node. Return the results of all processes that had something to do.

        Raises:
            ProcessFailedError: the action failed in a process, or a process did not answer. All other processes have
                run the action.
        """
        others = [path for path in self.list_sockets() if path.stem != self._name]
        asked = _ActionRequest(action, list(arguments), RequestOrigin.current().text)
        names = [self._name, *(path.stem for path in others)]
        said = await asyncio.gather(self._do(asked), *(self._ask(path, asked) for path in others))
        failed = [f"{name}: {one.error}" for name, one in zip(names, said, strict=True) if one.error]
        if failed:
            raise ProcessFailedError("; ".join(failed))
        return {name: one.result for name, one in zip(names, said, strict=True) if one.result is not None}

    def list_sockets(self) -> list[Path]:
        return [] if self._folder is None else sorted(self._folder.glob(f"*{_SUFFIX}"))

    async def _do(self, asked: _ActionRequest) -> _ActionResult:
        action = self._actions.get(asked.action)
        if action is None:
            return _ActionResult()
        try:
            with RequestOrigin.parse(asked.origin).restored():
                async with asyncio.timeout(self._limits.managed_wait_s_max):
                    result = await action(*asked.arguments)
                if result is not None:
                    log.info("managed_action", action=asked.action, arguments=asked.arguments)
                return _ActionResult(result)
        except Exception as error:
            log.warning("managed_action_failed", action=asked.action, exc_info=error)
            return _ActionResult(error=str(error) or type(error).__name__)

    async def _ask(self, path: Path, asked: _ActionRequest) -> _ActionResult:
        try:
            async with asyncio.timeout(self._limits.managed_wait_s_max):
                reader, writer = await asyncio.open_unix_connection(path)
                try:
                    writer.write(msgspec.json.encode(asked) + b"\n")
                    return msgspec.json.decode(await reader.readline(), type=_ActionResult)
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
        except (FileNotFoundError, ConnectionRefusedError):
            return _ActionResult()  # the process has ended, or was killed and will soon be replaced
        except (OSError, TimeoutError, msgspec.MsgspecError) as error:
            return _ActionResult(error=str(error) or type(error).__name__)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = msgspec.json.decode(await reader.readline(), type=_ActionRequest)
            writer.write(msgspec.json.encode(await self._do(asked)) + b"\n")
            await writer.drain()
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("managed_request_unreadable", detail=str(error))
        finally:
            writer.close()
