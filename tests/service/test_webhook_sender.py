"""Test the sender of events: what it signs, and where it refuses to send."""

import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import ThreadedResolver, web

from jobs.errors import DeliveryFailedError
from service.webhook_sender import find_fault, is_public, open_sender, sign
from storage.events.event_log import Event
from tests.clients.served import serving_handler

EVENT = Event(7, 1_795_255_200_000_000, "board.closed", "arena:2026-W48")
# The example in the text of Standard Webhooks.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Receiver:
    def __init__(self) -> None:
        self.status, self.address = 200, ""
        self.got: list[tuple[dict[str, str], bytes]] = []

    async def serve(self, request: web.Request) -> web.Response:
        self.got.append(({name.lower(): value for name, value in request.headers.items()}, await request.read()))
        return web.Response(status=self.status, headers={"Location": "http://127.0.0.1/"})


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    async with serving_handler(made.serve) as url:
        made.address = url
        yield made


def test_the_signature_is_that_of_standard_webhooks() -> None:
    body = b'{"test": 2432232314}'
    signature = sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_delivery_has_one_signature_for_each_secret(receiver: Receiver) -> None:
    async with open_sender(["127.0.0.1"]) as send:
        await send(receiver.address, [SECRET, "whsec_b25l"], "event_7", EVENT)
    [(headers, body)] = receiver.got
    at_s = int(headers["webhook-timestamp"])
    assert headers["webhook-id"] == "event_7"
    assert headers["webhook-signature"].split() == [
        sign(secret, "event_7", at_s, body) for secret in (SECRET, "whsec_b25l")
    ]
    assert json.loads(body) == {
        "type": "board.closed",
        "timestamp": "2026-11-21T10:00:00.000000Z",
        "data": {"seq": 7, "board": "arena:2026-W48"},
    }


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_any_answer_but_2xx_is_a_failure_and_redirects_are_not_followed(receiver: Receiver, status: int) -> None:
    receiver.status = status
    async with open_sender(["127.0.0.1"]) as send:
        with pytest.raises(DeliveryFailedError, match=str(status)):
            await send(receiver.address, [SECRET], "event_7", EVENT)
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True), ("2606:2800:220:1::1", True),
        ("127.0.0.1", False), ("10.1.2.3", False), ("192.168.0.1", False), ("169.254.169.254", False),
        ("100.64.0.1", False), ("0.0.0.0", False), ("224.0.0.1", False), ("::1", False), ("fe80::1%eth0", False),
        ("fd00::1", False), ("::ffff:10.0.0.1", False), ("::ffff:169.254.169.254", False), ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False), ("::", False),
    ],
)  # fmt: skip
def test_only_machines_of_the_public_internet_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    "url",
    [
        "http://game.example/", "ftp://game.example/", "https://", "https://127.0.0.1/", "https://[::1]/", "nonsense",
        "https://user:secret@game.example/", "https://[::ffff:10.0.0.1]/", "https://169.254.169.254/latest",
    ],
)  # fmt: skip
async def test_a_url_that_may_reach_a_private_machine_is_refused(url: str) -> None:
    assert find_fault(url, []) is not None
    async with open_sender([]) as send:
        with pytest.raises(DeliveryFailedError, match="not allowed"):
            await send(url, [SECRET], "event_7", EVENT)


def test_what_an_operator_trusts_may_be_private_and_plain() -> None:
    assert find_fault("http://10.0.0.1:9000/events", ["10.0.0.1"]) is None
    assert find_fault("http://hooks.internal/events", ["hooks.internal"]) is None
    assert find_fault("https://game.example/events", []) is None


@pytest.mark.parametrize("found", [["10.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:127.0.0.1"]])
async def test_a_public_name_with_a_private_address_is_never_connected_to(
    monkeypatch: pytest.MonkeyPatch, found: list[str]
) -> None:
    async def resolve(*_: Any) -> list[dict[str, Any]]:
        return [
            {"hostname": "game.example", "host": each, "port": 443, "family": socket.AF_INET, "proto": 0, "flags": 0}
            for each in found
        ]

    async def connect(*_: Any, **__: Any) -> None:
        raise AssertionError("it was connected to")

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)
    monkeypatch.setattr(aiohttp.TCPConnector, "_wrap_create_connection", connect)
    async with open_sender([]) as send:
        with pytest.raises(DeliveryFailedError, match="not public"):
            await send("https://game.example/", [SECRET], "event_7", EVENT)
