"""Every process of a node runs an action. If a process fails or does not answer, it is named, and the others go on."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from config.settings import ManagedSettings
from service.monitoring.managed.node_channel import Action, NodeChannel, ProcessFailedError
from service.telemetry.metrics.node import NodeMember

PATIENT, HASTY = (
    ManagedSettings().model_copy(update={"managed_wait_s_max": 60}),
    ManagedSettings().model_copy(update={"managed_wait_s_max": 0.1}),
)


def channel(folder: Path | None, name: str, *, limits: ManagedSettings = PATIENT, **actions: Action) -> NodeChannel:
    return NodeChannel(actions, limits, None if folder is None else NodeMember(folder, name))


def make_action(result: object) -> Callable[..., Awaitable[object]]:
    async def act(*arguments: str) -> object:
        return None if result is None else [result, *arguments]

    return act


async def test_every_process_that_has_the_action_answers_under_its_name(tmp_path: Path) -> None:
    one = channel(tmp_path, "worker1", run=make_action(1))
    async with AsyncExitStack() as stack:
        for process in (
            one, channel(tmp_path, "worker2", run=make_action(2)), channel(tmp_path, "jobs1", run=make_action(None)),
            channel(tmp_path, "old"),
        ):  # fmt: skip
            await stack.enter_async_context(process.listen_for_actions())
        given = ["a\nb", "é"]
        assert await one.run_everywhere("run", *given) == {"worker1": [1, *given], "worker2": [2, *given]}
        assert await one.run_everywhere("nothing") == {}
    assert not list(one.list_sockets())


async def test_a_single_process_runs_an_action_itself() -> None:
    alone = channel(None, "", run=make_action(1))
    async with alone.listen_for_actions():
        assert await alone.run_everywhere("run") == {"process": [1]}


async def test_an_error_names_the_failed_process_and_the_others_run_the_action(tmp_path: Path) -> None:
    done: list[str] = []

    async def act() -> bool:
        done.append("worker1")
        return True

    async def fail() -> None:
        raise ValueError("broken")

    one = channel(tmp_path, "worker1", run=act)
    async with one.listen_for_actions(), channel(tmp_path, "worker2", run=fail).listen_for_actions():
        with pytest.raises(ProcessFailedError, match="worker2: broken"):
            await one.run_everywhere("run")
    assert done == ["worker1"]


async def test_an_error_names_the_process_that_does_not_answer_in_time(tmp_path: Path) -> None:
    async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    server = await asyncio.start_unix_server(silent, tmp_path / "worker2.sock")
    with pytest.raises(ProcessFailedError, match="worker2: TimeoutError"):
        await channel(tmp_path, "worker1", limits=HASTY, run=make_action(1)).run_everywhere("run")
    server.close()


async def test_a_socket_of_a_killed_process_is_ignored_and_its_successor_reuses_it(tmp_path: Path) -> None:
    one = channel(tmp_path, "worker1", run=make_action(1))
    left_behind = await asyncio.start_unix_server(lambda *_: None, tmp_path / "worker2.sock")
    left_behind.close()
    await left_behind.wait_closed()
    (tmp_path / "worker2.sock").touch()
    assert await one.run_everywhere("run") == {"worker1": [1]}
    async with channel(tmp_path, "worker2", run=make_action(2)).listen_for_actions():
        assert await one.run_everywhere("run") == {"worker1": [1], "worker2": [2]}


async def test_a_malformed_request_is_refused_and_the_channel_keeps_working(tmp_path: Path) -> None:
    one = channel(tmp_path, "worker1", run=make_action(1))
    async with one.listen_for_actions():
        for line in (b"nonsense\n", b'{"action": 3}\n', b""):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "worker1.sock")
            writer.write(line)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        assert await channel(tmp_path, "other").run_everywhere("run") == {"worker1": [1]}
