"""Test that a request's id and trace survive encoding as text, and that all work for the request can read them."""

import asyncio

import pytest

from jobs.request_origin import REQUEST_ID, TRACEPARENT, RequestOrigin, trace_id_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "origin",
    [RequestOrigin(), RequestOrigin("abc-1"), RequestOrigin("abc-1", PARENT), RequestOrigin("", PARENT)],
    ids=str,
)
def test_an_origin_comes_back_from_its_text(origin: RequestOrigin) -> None:
    assert RequestOrigin.parse(origin.text) == origin


@pytest.mark.parametrize("text", [None, "", 'a"b', "x" * 65, "abc-1 nonsense", f"abc-1 {PARENT}0"])
def test_text_that_is_no_id_or_no_trace_is_left_out(text: str | None) -> None:
    origin = RequestOrigin.parse(text)
    assert origin.traceparent == ""
    assert origin.request_id in ("", "abc-1")


@pytest.mark.parametrize(
    ("traceparent", "trace_id"),
    [
        (PARENT, TRACE), ("", ""), ("nonsense", ""), (PARENT.replace(TRACE, "0" * 32), ""),
        (PARENT.replace("00f067aa0ba902b7", "0" * 16), ""), (PARENT.upper(), ""), ("ff" + PARENT[2:], ""),
    ],
)  # fmt: skip
def test_a_trace_has_an_id_where_the_header_is_one(traceparent: str, trace_id: str) -> None:
    assert trace_id_of(traceparent) == trace_id


async def test_work_for_a_request_knows_its_origin_and_later_work_does_not() -> None:
    with RequestOrigin("abc-1", PARENT).restored():
        assert await asyncio.create_task(_current()) == RequestOrigin("abc-1", PARENT)
    assert RequestOrigin.current() == RequestOrigin()
    REQUEST_ID.set("other")
    TRACEPARENT.set("nonsense")
    assert RequestOrigin.current() == RequestOrigin("other")


async def _current() -> RequestOrigin:
    return RequestOrigin.current()
