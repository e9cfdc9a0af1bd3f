"""Test connections of Redis clients: keys, protocol versions, and bounds on what clients send."""

import asyncio
import random
from typing import Any

import pytest
from redis import Redis as PlainRedis
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, ConnectionError, NoPermissionError, ResponseError

from service.resp import door as door_module
from service.resp.door import Connection
from service.resp.session import Session
from tests.servers import free_port
from tests.service.real_service import WAIT_S, Service, Spawn, environment

from .conftest import NO_RETRY, Client

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def open_streams(port: int) -> Streams:
    return await asyncio.open_connection("127.0.0.1", port)


def encode(*words: str) -> bytes:
    parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
    return f"*{len(parts)}\r\n{''.join(parts)}".encode()


async def test_a_client_says_hello(connect: Client) -> None:
    for protocol in (2, 3):
        client = connect(protocol=protocol, client_name="game")
        assert await client.ping()
        assert await client.client_getname() == "game"
        assert (await client.info())["redis_mode"] == "standalone"
        assert await client.echo("x") == "x"
        assert await client.select(0)
        assert await client.command_count() > 30
        hello = await client.execute_command("HELLO", protocol)
        assert protocol in (hello if isinstance(hello, list) else hello.values())


async def test_callers_need_a_key_with_the_role(service: Service, connect: Client, door: int) -> None:
    await connect().zadd("arena", {"ada": 1})
    ops = await service.create_first_key()
    keys = {
        role: (await service.must("POST", "/v1/keys", {"name": role, "role": role})) for role in ("reader", "writer")
    }
    with pytest.raises(AuthenticationError):
        await connect().zscore("arena", "ada")
    with pytest.raises(AuthenticationError):
        await connect(password="rk_wrong").ping()
    reader, writer = connect(password=keys["reader"]["key"]), connect(username="x", password=keys["writer"]["key"])
    assert await reader.zscore("arena", "ada") == 1
    with pytest.raises(NoPermissionError):
        await reader.zadd("arena", {"ada": 2})
    assert await writer.zadd("arena", {"ada": 2}) == 0
    with pytest.raises(NoPermissionError):
        await writer.zrem("arena", "ada")
    with pytest.raises(NoPermissionError):
        await writer.delete("arena")
    assert await connect(password=ops).zrem("arena", "ada") == 1
    acts = await service.get("/v1/acts?board=arena&owner=ada")
    assert [each["act"] for each in acts["acts"]] == ["entry.set"]


async def test_a_revoked_key_ends_its_connections(service: Service, door: int) -> None:
    await service.create_first_key()
    made = await service.must("POST", "/v1/keys", {"name": "reader", "role": "reader"})
    reader, writer = await open_streams(door)
    writer.write(encode("AUTH", made["key"]))
    assert await reader.readline() == b"+OK\r\n"
    await service.must("DELETE", f"/v1/keys/{made['id']}")
    async with asyncio.timeout(WAIT_S):
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"*100000000\r\n", b"*1\r\n*1\r\n$1\r\na\r\n", b"$-5\r\nx", b"*1\r\n:5\r\n"]
)
async def test_bytes_that_are_no_commands_end_the_connection(door: int, redis: Any, sent: bytes) -> None:
    reader, writer = await open_streams(door)
    writer.write(sent)
    async with asyncio.timeout(WAIT_S):
        assert (await reader.read()).startswith(b"-ERR Protocol error")
    writer.close()
    assert await redis.ping()


async def test_random_bytes_harm_nobody(door: int, redis: Any) -> None:
    rng = random.Random(7)
    good = (
        encode("ZADD", "arena", "1", "ada") + encode("ZRANGE", "arena", "0", "-1", "WITHSCORES") + encode("HELLO", "3")
    )
    for _ in range(150):
        reader, writer = await open_streams(door)
        sent = bytearray(good * 3)
        for _ in range(rng.randint(1, 8)):
            sent[rng.randrange(len(sent))] = rng.choice(b"*$\r\n-0123456789:%~>_,\x00\xff")
        writer.write(bytes(sent[: rng.randint(1, len(sent))]))
        writer.write_eof()
        async with asyncio.timeout(WAIT_S):
            await reader.read()
        writer.close()
    assert await redis.ping()
    assert await redis.zcard("arena") >= 1


async def test_a_command_may_arrive_byte_by_byte(door: int) -> None:
    reader, writer = await open_streams(door)
    for byte in encode("ZADD", "arena", "1.5", "zoë") + encode("ZSCORE", "arena", "zoë"):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    assert await reader.readline() == b":1\r\n"
    assert await reader.readline() == b"$3\r\n"
    writer.close()


async def test_too_large_a_command_ends_the_connection(service: Service) -> None:
    await service.restart(body_bytes_max=4_096)
    async with door_module.open_door(service.context, None, 0) as [address]:
        reader, writer = await open_streams(int(address.rpartition(":")[2]))
        writer.write(b"*2\r\n$3\r\nGET\r\n$90000000\r\n" + b"x" * 8_000)
        async with asyncio.timeout(WAIT_S):
            assert b"at most 4096 bytes" in await reader.read()
        writer.close()


async def test_a_client_that_reads_nothing_is_not_read(door: int, redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await redis.zadd("arena", {f"{number:>100}": number for number in range(1_000)})
    paused, ran = asyncio.Event(), list[int]()
    pause_writing, run = Connection.pause_writing, Session.run

    def pause(self: Connection) -> None:
        pause_writing(self)
        paused.set()

    async def count(self: Session, commands: Any, send: Any) -> None:
        ran.append(len(commands))
        await run(self, commands, send)

    monkeypatch.setattr(Connection, "pause_writing", pause)
    monkeypatch.setattr(Session, "run", count)
    _, writer = await open_streams(door)
    while not paused.is_set():
        writer.write(encode("ZRANGE", "arena", "0", "-1") * 10)
        await asyncio.wait([asyncio.create_task(paused.wait())], timeout=0.01)
    before = len(ran)
    writer.write(encode("ZRANGE", "arena", "0", "-1") * 1_000)
    pings = 50
    for _ in range(pings):
        assert await redis.ping()
    assert len(ran) <= before + pings + 1
    writer.transport.abort()


async def test_others_are_answered_during_a_huge_pipeline(door: int, redis: Any) -> None:
    reader, writer = await open_streams(door)
    commands = 20_000
    writer.write(b"".join([encode("ZINCRBY", "huge", "1", f"m{number}") for number in range(commands)]))
    answers = 0

    async def read_all() -> None:
        nonlocal answers
        for _ in range(2 * commands):
            await reader.readline()
            answers += 1
            begun.set()

    begun = asyncio.Event()
    reading = asyncio.create_task(read_all())
    await begun.wait()
    assert await redis.ping()
    assert answers < 2 * commands, "the pipeline ended before the other client was answered"
    await reading
    assert await redis.zcard("huge") == commands
    writer.close()


async def test_too_many_connections_are_refused(door: int, redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await redis.ping()
    monkeypatch.setattr(door_module, "CONNECTIONS_MAX", 1)
    reader, writer = await open_streams(door)
    async with asyncio.timeout(WAIT_S):
        assert await reader.read() == b"-ERR max number of clients reached\r\n"
    writer.close()


async def test_a_stranger_has_to_authenticate_soon(service: Service) -> None:
    await service.create_first_key()
    await service.restart(head_wait_s_max=0.1)
    async with door_module.open_door(service.context, None, 0) as [address]:
        reader, writer = await open_streams(int(address.rpartition(":")[2]))
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == b""
        writer.close()


async def test_a_service_without_resp_board_makes_no_board(service: Service) -> None:
    async with (
        door_module.open_door(service.context, None, 0) as [address],
        Redis(port=int(address.rpartition(":")[2])) as client,
    ):
        with pytest.raises(ResponseError):
            await client.zadd("arena", {"ada": 1})
        assert await client.zcard("arena") == 0


async def test_the_end_of_the_service_closes_connections(service: Service) -> None:
    async with door_module.open_door(service.context, None, 0) as [address]:
        client: Any = Redis(port=int(address.rpartition(":")[2]), retry=NO_RETRY)
        assert await client.ping()
    with pytest.raises(ConnectionError):
        await client.ping()
    await client.aclose()


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_service_with_resp_port_listens(spawn: Spawn, workers: str) -> None:
    port = free_port()
    process = spawn("--workers", workers, variables={**environment(), "RANKCURVE_RESP_PORT": str(port)}).ready()
    with PlainRedis(port=port, decode_responses=True) as client:
        assert client.zadd("arena", {"ada": 2, "bob": 3}) == 2
        assert client.zrevrange("arena", 0, -1) == ["bob", "ada"]
    assert process.end() == 0
