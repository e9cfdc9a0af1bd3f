"""A path selects a part of a value, and its wildcards filter parts. Limits cut values that are too deep or long."""

from typing import Any

import pytest

from service.monitoring.jolokia.errors import BadRequestError
from service.monitoring.jolokia.requests import Parameters
from service.monitoring.jolokia.values import cut_to_limits, encode_answer, follow_path

VALUE = {"a": {"used": 1, "max": [5, {"x": 6}]}, "b": {"used": 2}, "c": 3}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ([], VALUE), (["a", "used"], 1), (["a", "max", "1", "x"], 6), (["*", "used"], {"a": 1, "b": 2}),
        (["*", "max", "*", "x"], {"a": [6]}), (["a", "max", "*"], [5, {"x": 6}]),
    ],
    ids=lambda each: str(each)[:20],
)  # fmt: skip
def test_a_path_finds_a_part_of_a_value(path: list[str], found: Any) -> None:
    assert follow_path(VALUE, path) == found


@pytest.mark.parametrize("path", [["d"], ["a", "max", "7"], ["c", "x"], ["*", "nothing"], ["a", "max", "-1"]])
def test_a_path_that_leads_nowhere_is_refused(path: list[str]) -> None:
    with pytest.raises(BadRequestError):
        follow_path(VALUE, path)


def test_limits_cut_depth_collections_and_objects() -> None:
    assert cut_to_limits(VALUE, Parameters(max_depth=1))["c"] == 3
    assert cut_to_limits(VALUE, Parameters(max_depth=1))["b"] == "[Depth limit {'used': 2}]"
    assert cut_to_limits(VALUE, Parameters(max_collection_size=1)) == {"a": {"used": 1}}
    cut = "[Object limit exceeded]"
    assert cut_to_limits([1, 2, 3], Parameters(max_objects=2)) == [1, cut, cut]
    assert cut_to_limits({"n": 2**60, "t": True}, Parameters(serialize_long="string")) == {"n": str(2**60), "t": True}
    assert encode_answer({"a": [float("nan"), float("-inf"), 1.5]}) == b'{"a":[null,null,1.5]}'
    assert encode_answer({"a": 1}) == b'{"a":1}'
