"""Test that a process that has copies of boards and families answers as a fresh process does."""

import random
from pathlib import Path

import pytest

from tests.schemas import PARTITIONS
from tests.service.copied_boards import Processes, Walk, fronts_and_owner, services

STEPS = 180  # `benchmarks/copies.py` takes 10,000


@pytest.mark.parametrize("segments", [1, 3])
async def test_copies_of_fronts_make_no_difference(tmp_path: Path, segments: int) -> None:
    async with fronts_and_owner(tmp_path) as processes:
        await walk(processes, segments=segments)


async def test_copies_of_services_make_no_difference(store_url: str, tmp_path: Path) -> None:
    async with services(tmp_path, store_url) as processes:
        await walk(processes)


@pytest.mark.parametrize("segments", [1, 3])
async def test_copies_of_services_on_partitions_make_no_difference(
    partitions_url: str, tmp_path: Path, segments: int
) -> None:
    async with services(tmp_path, partitions_url) as processes:
        await walk(processes, segments=segments, partitions=PARTITIONS)


async def walk(processes: Processes, *, segments: int = 1, partitions: int = 1) -> None:
    taken = Walk(processes, random.Random(segments), segments=segments, partitions=partitions)
    await taken.take_steps(STEPS)
    assert taken.answered
    assert not taken.differences, "\n".join(taken.differences[:3])
