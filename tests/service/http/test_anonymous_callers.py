"""Test the bounds of callers without an API key: the rates, the open requests, and what counts as one address."""

from functools import cache

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from config import Settings
from service.contract.problems import ProblemError
from service.http.rate_limits import AnonymousCallers, find_address
from storage.meter import NO_METER


@cache
def make_request(address: str) -> web.Request:
    return make_mocked_request("GET", "/", headers={"X-Forwarded-For": address})


class Callers:
    """Anonymous callers at a time that the test sets."""

    def __init__(self, **settings: float) -> None:
        self.now_s = 0.0
        bounds = Settings.model_validate({"trusted_proxies": 1, **settings})
        self._callers = AnonymousCallers(bounds, NO_METER, monotonic=lambda: self.now_s)

    def begin(self, address: str) -> str:
        return self._callers.begin_request(make_request(address))

    def read(self, address: str) -> bool:
        """Return whether a request of this address passes."""
        try:
            self._callers.end_request(self.begin(address))
        except ProblemError as error:
            return error.code != "rate_limited"
        return True

    def end(self, address: str) -> None:
        self._callers.end_request(address)


def test_each_address_has_a_rate_and_all_have_one() -> None:
    callers = Callers(
        anonymous_reads_per_s=1, anonymous_reads_burst=2, anonymous_total_reads_per_s=1, anonymous_total_reads_burst=5
    )
    assert [callers.read("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert [callers.read("10.0.0.2") for _ in range(3)] == [True, True, False]
    assert [callers.read("10.0.0.3") for _ in range(2)] == [True, False], "the rate of all is used up"
    callers.now_s += 1
    assert [callers.read("10.0.0.1") for _ in range(2)] == [True, False]


def test_the_ports_of_an_address_share_its_rate() -> None:
    callers = Callers(anonymous_reads_per_s=1, anonymous_reads_burst=2, anonymous_requests_max=2)
    assert [callers.read(f"10.0.0.1:{port}") for port in range(50_000, 50_004)] == [True, True, False, False]
    assert [callers.read(f"[2001:db8::1]:{port}") for port in range(50_000, 50_004)] == [True, True, False, False]


def test_without_rates_nothing_is_refused() -> None:
    callers = Callers(anonymous_reads_per_s=0, anonymous_total_reads_per_s=0)
    assert all(callers.read("10.0.0.1") for _ in range(5_000))


def test_the_rates_are_on_by_default() -> None:
    callers = Callers()
    assert not all(callers.read("10.0.0.1") for _ in range(201))
    assert not all(callers.read(f"10.0.0.{number % 250}") for number in range(2_001)), "those of all addresses together"


def test_an_address_has_few_requests_open_at_once() -> None:
    callers = Callers(anonymous_requests_max=2)
    first, _ = callers.begin("10.0.0.1"), callers.begin("10.0.0.1")
    assert not callers.read("10.0.0.1")
    assert callers.read("10.0.0.2")
    callers.end(first)
    assert callers.read("10.0.0.1")


@pytest.mark.parametrize(
    ("sent", "proxies", "address"),
    [
        ("", 0, "-"),
        ("10.0.0.1", 0, "-"),
        ("10.0.0.1", 1, "10.0.0.1"),
        ("invented, 10.0.0.1", 1, "10.0.0.1"),
        ("invented, 10.0.0.1,10.0.0.2", 2, "10.0.0.1"),
        ("10.0.0.2", 2, "-"),
        ("2001:db8:1:2:3:4:5:6", 1, "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]", 1, "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.1", 1, "10.0.0.1"),
        ("10.0.0.1:50001", 1, "10.0.0.1"),
        ("invented, 10.0.0.1:50002, 10.0.0.2:80", 2, "10.0.0.1"),
        ("[2001:db8:1:2::9]:443", 1, "2001:db8:1:2::/64"),
        ('"[2001:db8:1:2::9]:443"', 1, "2001:db8:1:2::/64"),
        ("[::ffff:10.0.0.1]:50001", 1, "10.0.0.1"),
        ("[::1]:", 1, "::/64"),
        ("2001:db8:1:2:3:4:5:443", 1, "2001:db8:1:2::/64"),
        ("unknown", 1, "unknown"),
    ],
)
def test_an_address_comes_from_the_proxies_that_are_trusted(sent: str, proxies: int, address: str) -> None:
    request = make_mocked_request("GET", "/", headers={"X-Forwarded-For": sent} if sent else {})
    own = request.remote or ""
    assert find_address(request, proxies=proxies) == (own if address == "-" else address)


def test_the_lines_of_one_header_are_read_in_order() -> None:
    request = make_mocked_request(
        "GET", "/", headers=[("X-Forwarded-For", "10.0.0.1"), ("X-Forwarded-For", "10.0.0.2")]
    )
    assert find_address(request, proxies=1) == "10.0.0.2"
    assert find_address(request, proxies=2) == "10.0.0.1"
