"""Test the commands that move a board to another partition, and to other segments."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.engines.postgres import PostgresStore
from storage.engines.sqlite import SqliteStore
from tests.schemas import fresh_schema
from tests.service.cli_fake_service import run
from tests.storage.backends import POSTGRES_LIMITS, SQLITE_LIMITS
from tests.storage.deployment import Deployment, part, ranked


@pytest.fixture
async def place(postgres_url: str) -> AsyncIterator[str]:
    async with fresh_schema(postgres_url) as url:
        yield url


async def move(*arguments: str, code: int) -> str:
    return (await asyncio.to_thread(run, "partition", "move", *arguments, code=code)).output


async def test_the_command_moves_a_board_and_says_how_long_posts_waited(place: str) -> None:
    store = await PostgresStore.open(place, POSTGRES_LIMITS)
    try:
        await store.create_apart(3)
        deployment = await Deployment.on(store)
        board = await deployment.create("season", ranked("xp"))
        await deployment.apply(deployment.post("ada", part(board, {"xp": 5}), post_id="1"))
        output = await move("season", "0", "--store", place, code=0)
        assert "season is in partition 0: 1 rows and 1 post ids copied" in output
        assert "posts to it waited for at most" in output
        assert (await deployment.find("season")).partition == 0
        for arguments, said in (
            (("season", "0"), "in partition 0 already"),
            (("season", "3"), "partitions 0 to 2"),
            (("unknown", "1"), "no leaderboard 'unknown'"),
        ):
            assert said in await move(*arguments, "--store", place, code=1)
    finally:
        await store.close()


async def test_the_command_splits_a_board(place: str) -> None:
    store = await PostgresStore.open(place, POSTGRES_LIMITS)
    try:
        await store.create_apart(3)
        deployment = await Deployment.on(store)
        board = await deployment.create("season", ranked("xp"))
        posts = [deployment.post(f"o{number}", part(board, {"xp": number}), post_id=str(number)) for number in range(9)]
        await deployment.apply(*posts)
        output = await asyncio.to_thread(run, "board", "split", "season", "3", "--store", place, code=0)
        assert "season has 3 segments: 9 rows and 9 post ids copied" in output.output
        assert "posts to it waited for at most" in output.output
        found = await deployment.find("season")
        assert sorted(segment.partition for segment in found.leaves) == [0, 1, 2]
        assert "has segments" in await move("season", "1", "--store", place, code=1)
    finally:
        await store.close()


async def test_a_store_in_one_file_has_no_other_partition(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "boards.db", SQLITE_LIMITS)
    await (await Deployment.on(store)).create("season", ranked("xp"))
    await store.close()
    assert "partitions 0 to 0" in await move("season", "1", "--store", f"sqlite:///{tmp_path / 'boards.db'}", code=1)
