"""Test the commands that create stores, and add and list their partitions, on real stores."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.schemas import fresh_schema
from tests.servers import PostgresServer
from tests.service.cli_fake_service import run


@pytest.fixture
async def store_url(postgres_url: str) -> AsyncIterator[str]:
    async with fresh_schema(postgres_url) as url:
        yield url


def schema_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["search_path"][0]


def test_a_store_with_partitions_is_created_once(store_url: str) -> None:
    name = schema_of(store_url)
    made = run("store", "init", "--partitions", "3", "--store", store_url, code=0).stdout.splitlines()
    assert made[0].endswith("with 3 partitions")
    assert made[1:] == [f"control: schema {name}_control", *(f"{n}: schema {name}_p{n}" for n in range(3))]
    listed = run("partition", "list", "--store", store_url, "--json", code=0).stdout
    for options in ((), ("--partitions", "2")):
        refused = run("store", "init", *options, "--store", store_url, code=1)
        assert "a store already exists there; nothing was changed" in refused.output
    assert run("partition", "list", "--store", store_url, "--json", code=0).stdout == listed
    assert [each["partition"] for each in json.loads(listed)] == ["control", "0", "1", "2"]


def test_an_ordinary_store_gets_further_partitions(store_url: str) -> None:
    name = schema_of(store_url)
    assert "with 1 partition\n" in run("store", "init", "--store", store_url, code=0).stdout
    refused = run("store", "init", "--store", store_url, code=1)
    assert "a store already exists there" in refused.output
    for number in (1, 2):
        added = run("partition", "add", "--store", store_url, code=0).stdout
        assert added == f"partition {number}: schema {name}_p{number}\n"
    listed = json.loads(run("partition", "list", "--store", store_url, "--json", code=0).stdout)
    assert [(each["partition"], each["schema"]) for each in listed] == [
        ("0", name), ("1", f"{name}_p1"), ("2", f"{name}_p2")
    ]  # fmt: skip
    assert all(each["bytes"] > 0 for each in listed)


async def test_citus_is_refused_on_a_server_without_the_extension(postgres_server: PostgresServer) -> None:
    async with fresh_schema(postgres_server.url()) as store_url:
        refused = await asyncio.to_thread(run, "store", "init", "--citus", "--store", store_url, code=1)
        assert "has no extension citus" in refused.output
        await asyncio.to_thread(run, "store", "init", "--store", store_url, code=0)


def test_a_sqlite_store_has_one_partition(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/rankcurve.db")
    for words in (("store", "init", "--partitions", "2"), ("store", "init", "--citus"), ("partition", "add")):
        assert "a SQLite file has one partition" in run(*words, *store, code=2).output
    assert not list(tmp_path.iterdir())
    run("store", "init", *store, code=0)
    assert "a store already exists there" in run("store", "init", *store, code=1).output
    [listed] = json.loads(run("partition", "list", "--json", *store, code=0).stdout)
    assert (listed["partition"], listed["schema"]) == ("0", None)
