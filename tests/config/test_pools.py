"""Why here: a pool that is written wrong would quietly be no pool at all."""

from __future__ import annotations

import pytest

from config.pools import BoardPool, parse_pools


def test_pools_are_read_in_their_order_and_the_first_pattern_that_matches_counts() -> None:
    pools = parse_pools("arena=arena-*:2, rest=*:10")
    assert pools == [BoardPool("arena", "arena-*", 2), BoardPool("rest", "*", 10)]
    assert [pool.name for pool in pools if pool.takes("arena-7")] == ["arena", "rest"]
    assert [pool.name for pool in pools if pool.takes("Arena-7")] == ["rest"]
    assert parse_pools("") == []


@pytest.mark.parametrize(
    "text", ["arena", "arena=x", "arena=x:0", "arena=x:100", "=x:1", "a=x:1,a=y:1", "common=x:1", "A=x:1", "a=x y:1"]
)
def test_what_is_no_pool_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_pools(text)
