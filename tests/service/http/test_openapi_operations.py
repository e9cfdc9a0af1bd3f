"""Test the list of operations for people, and that the service accepts every example request of it."""

import json
from typing import Any

import pytest

from docs.openapi_document import list_codes
from docs.openapi_operations import OPEN, Operation, format_json, list_common_codes, list_operations
from docs.route_words import ROUTE_WORDS
from service.contract.api_keys import Role
from tests.service.openapi_checks import DOCUMENT, ROUTE_TABLE
from tests.service.real_service import Service

OPERATIONS = list_operations(DOCUMENT)
BY_ID = {each.id: each for each in OPERATIONS}
# The example requests in an order in which each finds what it names. Those in neither list come between the two.
FIRST = (
    "create_key", "create_board", "create_family", "create_league", "put_pool", "add_resources", "post",
    "post_to_boards", "post_to_family", "post_to_league", "put_profile", "refresh_curve", "ask_lease", "put_webhook",
    "hide_owner", "show_owner",
)  # fmt: skip
LAST = (
    "delete_webhook", "leave_league",
    "give_back_lease", "remove_resources", "delete_pool", "remove_profile", "erase_entry", "erase_owner", "merge_owner",
    "reset_board", "delete_board", "delete_family", "delete_league",
)  # fmt: skip
ABSENT = {
    "erase_entry": (404, "unknown_owner"),  # `void_post` has taken back the only post of the entry
    "join": (409, "no_entry_rules"),  # a leaderboard with rules would refuse the other examples
    "claim_grant": (404, "unknown_grant"),  # no leaderboard has closed
    "cohort": (404, "unknown_board"),  # one owner fills no twelve cohorts
    "revoke_key": (404, "unknown_key"),  # its example can't know the id of a real key
}


def field(operation: str, name: str) -> tuple[str, bool, str, str]:
    [found] = [each for each in BY_ID[operation].fields if each.name == name]
    return found.place, found.is_required, found.allowed, found.description


def test_the_list_has_every_route_with_its_role_and_its_codes() -> None:
    assert {(each.method, each.path): each.role for each in OPERATIONS} == {
        (route.method, route.path): OPEN if route.role is None else route.role.name.lower() for route in ROUTE_TABLE
    }
    assert {route.view for route in ROUTE_TABLE} == ROUTE_WORDS.keys()
    for route in ROUTE_TABLE:
        assert sorted(code for _, code in BY_ID[route.view].codes) == sorted(set(list_codes(route)))


def test_common_codes_are_those_that_every_request_with_a_role_may_get() -> None:
    roles = [route for route in ROUTE_TABLE if route.role is not None]
    assert set(list_common_codes(OPERATIONS)) == set.intersection(*(set(list_codes(route)) for route in roles))
    assert {Role.READER, Role.PLAYER, Role.WRITER, Role.OPS} == {route.role for route in roles}


def test_fields_say_in_words_what_they_take() -> None:
    assert field("page", "limit") == ("query", False, "whole number from 1 to 1,000", "")
    assert field("positions", "rank")[2] == "`auto`, `estimate` or `exact`; default `auto`"
    assert field("positions", "next")[2] == "`true` or `false`; default `false`"
    assert field("positions", "columns")[2] == "list of 1 to 1,000, each: name of a column"
    assert field("values", "percentiles")[2] == "list of 1 to 1,000, each: number from 0 to 100"
    assert field("stream", "Last-Event-ID")[:3] == ("header", False, "text")
    assert field("board", "board")[:3] == ("path", True, "id of a leaderboard")
    assert field("ask_lease", "lease_seconds")[2].startswith("number above 0, at most ")
    assert field("journal", "after")[2] == "whole number from 0 or text of 0 to 2,048 characters; default `0`"


def test_members_of_members_have_names_with_points() -> None:
    assert field("create_board", "columns[].merge") == (
        "body",
        True,
        "`last`, `max`, `min`, `quotient`, `sum` or `with`",
        "",
    )
    assert field("create_board", "predictor.samples")[:3] == ("body", False, "whole number from 2 to 100,000")
    assert field("create_board", "closes_at")[2] == "time"
    assert field("post", "posts")[1:3] == (False, "list of 1 to 10,000, each: object")
    assert field("post", "stats")[2] == "object with values by name, each: decimal number"


def test_statuses_whose_answers_look_the_same_share_an_example() -> None:
    assert [each.statuses for each in BY_ID["create_board"].answers] == [("200", "201")]
    assert [(each.statuses, "accepted" in each.text) for each in BY_ID["post"].answers] == [
        (("200",), False),
        (("202",), True),
    ]
    assert [(each.statuses, each.media_type) for each in BY_ID["delete_board"].answers] == [(("204",), "")]


def test_the_event_of_a_stream_is_shown_as_it_is_sent() -> None:
    [answer] = BY_ID["stream"].answers
    assert answer.text.startswith("event: position\nid: 4711\ndata: {")
    assert BY_ID["stream"].curl("http://x").startswith('curl -N "http://x/v1/')


@pytest.mark.parametrize("value", [[], {}, {"a": [1, "é", None]}, {"a": ["x" * 60] * 5, "b": {"c": ["y" * 150]}}])
def test_json_is_broken_into_lines_and_stays_the_same(value: Any) -> None:
    text = format_json(value)
    assert json.loads(text) == value
    assert all(len(line) <= 120 or "y" in line for line in text.splitlines())


def in_order() -> list[Operation]:
    ids = [*FIRST, *sorted(BY_ID.keys() - {*FIRST, *LAST}), *LAST]
    return [BY_ID[each] for each in ids]


async def test_the_service_accepts_every_example_request(service: Service) -> None:
    await service.restart(player_token_keys=("s" * 32,))
    refused = {}
    for each in in_order():
        if each.is_stream:
            continue
        body = json.loads(each.example_body) if each.example_body else None
        answer = await service.call(each.method, each.example_path, body)
        if each.id == "create_key":
            service.headers["Authorization"] = f"Bearer {answer.body['key']}"
        if answer.status >= 400:
            refused[each.id] = answer.status, answer.body["code"]
    assert refused == ABSENT
