"""A short form of `benchmarks.brackets_as_of`: brackets are true as of their `as_of` while posts arrive."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.brackets_as_of import check_brackets
from tests.service.real_service import Service

OWNERS = 400
SECONDS = 4


async def check_service(folder: Path, **settings: Any) -> None:
    async with Service(folder, **settings).running() as service:
        posted = await check_brackets(urlsplit(service.base).port or 0, OWNERS, SECONDS)
    assert +posted.wrong == {}
    assert posted.count() > 0
    assert {"owner", "next", "value", "with"} <= {word for kind in posted.answers for word in kind.split()}


async def test_a_bracket_counts_what_was_answered_before_as_of_and_nothing_later(tmp_path: Path) -> None:
    await check_service(tmp_path)


async def test_brackets_are_true_as_of_their_time_on_several_partitions(tmp_path: Path, partitions_url: str) -> None:
    await check_service(tmp_path, store=partitions_url)
