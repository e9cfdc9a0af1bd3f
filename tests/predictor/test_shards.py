"""Test that the ranks within the shards of a board add up to the rank on the whole board."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from predictor import BoundedRank, Curve, Knot, add_up_ranks
from tests.predictor.quality import count_by_key

KEYS = st.lists(st.integers(-30, 30), max_size=60)


def make_curve(keys: list[int], every: int) -> Curve:
    """Make a curve with a knot at every `every`-th distinct key and at the last key."""
    knots, better_count = [], 0
    distinct = list(count_by_key(sorted(keys)))
    for index, (key, ties) in enumerate(distinct):
        if index % every == 0 or index == len(distinct) - 1:
            knots.append(Knot(key, better_count, ties))
        better_count += ties
    return Curve(knots, total=better_count, as_of_us=0)


@given(shards=st.lists(KEYS, max_size=4), every=st.integers(1, 5), key=st.integers(-35, 35))
def test_the_rank_over_shards_lies_in_the_sum_of_their_brackets(shards: list[list[int]], every: int, key: int) -> None:
    whole = sorted(key for shard in shards for key in shard)
    true_rank = 1 + bisect_left(whole, key)
    parts = [BoundedRank(*make_curve(shard, every).locate(key)[:3]) for shard in shards]
    found = add_up_ranks(parts)
    assert found.low <= true_rank <= found.high
    assert found.low <= found.rank <= found.high
    if every == 1:
        assert found == (true_rank, true_rank, true_rank)


def test_the_rank_over_no_shards_is_one() -> None:
    assert add_up_ranks([]) == (1, 1, 1)
