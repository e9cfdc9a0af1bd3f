"""Test connection pools in settings. A mistyped connection pool must be refused, not ignored."""

import pytest

from config.pools import BoardConnectionPool, parse_connection_pools


def test_pools_are_read_in_their_order_and_match_boards_by_pattern() -> None:
    pools = parse_connection_pools("arena=arena-*:2, rest=*:10")
    assert pools == [BoardConnectionPool("arena", "arena-*", 2), BoardConnectionPool("rest", "*", 10)]
    assert [pool.name for pool in pools if pool.matches_board("arena-7")] == ["arena", "rest"]
    assert [pool.name for pool in pools if pool.matches_board("Arena-7")] == ["rest"]
    assert parse_connection_pools("") == []


@pytest.mark.parametrize(
    "text", ["arena", "arena=x", "arena=x:0", "arena=x:100", "=x:1", "a=x:1,a=y:1", "common=x:1", "A=x:1", "a=x y:1"]
)
def test_text_that_is_no_pool_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="should"):
        parse_connection_pools(text)
