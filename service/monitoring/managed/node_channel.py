"""Passes an operator's action to all processes of a node, because every process runs the action on its own jobs.

    exec ──> run the action here, and send it to every other process ──> how many processes have run it

Every process listens on a socket in the node's folder. If a process does not answer in time, the error names the
process, and all other processes still run the action. Only the user that runs the node can open the sockets.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import structlog

from config.settings import ManagedSettings
from jobs.request_origin import describe_origin, working_for
from service.telemetry.metrics.node import NodeMember

from .objects import Fault, RefusedError

log = structlog.get_logger(__name__)

Act = Callable[[str, str], bool]  # takes an action and the name of a job; returns whether this process has the job
_SUFFIX = ".sock"
_ALONE = "process"


class _ActionRequest(msgspec.Struct, frozen=True):
    action: str
    job: str
    origin: str


class NodeChannel:
    """Connects a process to the other processes of its node. `node` is None if the process runs alone."""

    def __init__(self, act: Act, limits: ManagedSettings, node: NodeMember | None) -> None:
        self._act, self._limits = act, limits
        self._folder = None if node is None else node.folder
        self._name = _ALONE if node is None else node.name

    @asynccontextmanager
    async def listen_for_actions(self) -> AsyncIterator[None]:
        """Listen on the socket within the `async with` block, and run the actions that other processes send."""
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

    async def run_everywhere(self, action: str, job: str) -> int:
        """Run an action on a job in every process of the node. Return how many processes have the job.

        Raises:
            RefusedError: the action failed in a process, a process did not answer, or no process has the job. All
                other processes have run the action.
        """
        paths = [] if self._folder is None else sorted(self._folder.glob(f"*{_SUFFIX}"))
        others = [path for path in paths if path.stem != self._name]
        asked = _ActionRequest(action, job, describe_origin())
        done = int(self._do(asked))
        results = await asyncio.gather(*(self._ask(path, asked) for path in others), return_exceptions=True)
        failed = {path.stem: each for path, each in zip(others, results, strict=True) if isinstance(each, Exception)}
        if failed:
            text = "; ".join(f"{name}: {str(error) or type(error).__name__}" for name, error in failed.items())
            raise RefusedError(Fault.FAILED, text)
        done += sum(result is True for result in results)
        if not done:
            raise RefusedError(Fault.OBJECT_UNKNOWN, f"no process of this node currently has the job {job}")
        return done

    def _do(self, asked: _ActionRequest) -> bool:
        with working_for(asked.origin):
            done = self._act(asked.action, asked.job)
            if done:
                log.info("managed_action", action=asked.action, job=asked.job)
            return done

    async def _ask(self, path: Path, asked: _ActionRequest) -> bool:
        try:
            async with asyncio.timeout(self._limits.managed_wait_s_max):
                reader, writer = await asyncio.open_unix_connection(path)
                try:
                    writer.write(msgspec.json.encode(asked) + b"\n")
                    return msgspec.json.decode(await reader.readline(), type=bool)
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
        except (FileNotFoundError, ConnectionRefusedError):
            return False  # the process has ended, or was killed and will soon be replaced

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = msgspec.json.decode(await reader.readline(), type=_ActionRequest)
            writer.write(msgspec.json.encode(self._do(asked)) + b"\n")
            await writer.drain()
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("managed_request_unreadable", detail=str(error))
        finally:
            writer.close()
