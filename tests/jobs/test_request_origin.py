"""Test that a request's id and trace survive encoding as text, and that all work for the request can read them."""

import asyncio

import pytest

from jobs.request_origin import REQUEST_ID, TRACEPARENT, describe_origin, trace_id_of, working_for

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize("origin", ["", "abc-1", f"abc-1 {PARENT}", f" {PARENT}"])
async def test_work_for_a_request_knows_its_origin_and_later_work_does_not(origin: str) -> None:
    with working_for(origin):
        assert await asyncio.create_task(_describe_origin()) == origin
        assert f"{REQUEST_ID.get()} {TRACEPARENT.get()}".rstrip() == origin
    assert describe_origin() == ""
    REQUEST_ID.set("other")
    TRACEPARENT.set("nonsense")
    assert describe_origin() == "other"


async def _describe_origin() -> str:
    return describe_origin()


@pytest.mark.parametrize("origin", ["", 'a"b', "x" * 65, "abc-1 nonsense", f"abc-1 {PARENT}0"])
def test_text_that_is_no_id_or_no_trace_is_left_out(origin: str) -> None:
    with working_for(origin):
        assert TRACEPARENT.get() == ""
        assert REQUEST_ID.get() in ("", "abc-1")


@pytest.mark.parametrize(
    ("traceparent", "trace_id"),
    [
        (PARENT, TRACE), ("", ""), ("nonsense", ""), (PARENT.replace(TRACE, "0" * 32), ""),
        (PARENT.replace("00f067aa0ba902b7", "0" * 16), ""), (PARENT.upper(), ""), ("ff" + PARENT[2:], ""),
    ],
)  # fmt: skip
def test_a_trace_has_an_id_where_the_header_is_one(traceparent: str, trace_id: str) -> None:
    assert trace_id_of(traceparent) == trace_id
