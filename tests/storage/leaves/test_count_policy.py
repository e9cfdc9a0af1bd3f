"""Test when ranks are counted. A count that reads too much makes every other read wait; one too few blurs ranks."""

import pytest

from storage.leaves.count_policy import (
    COUNT_SLACK,
    DEFAULT_CHANGES_MAX,
    SHORT_GAP_ROWS,
    CountPolicy,
    RankMode,
    limit_gap_rows,
)

POLICY = CountPolicy(exact_top=100, changes_max=50_000)
LONG = 1_000  # a gap limit above `SHORT_GAP_ROWS`


def test_a_curve_is_used_unless_the_mode_is_exact_or_the_board_is_archived() -> None:
    modes: tuple[RankMode, ...] = ("auto", "exact", "estimate")
    assert [POLICY.uses_curve(mode) for mode in modes] == [True, False, True]
    assert not any(POLICY._replace(archived=True).uses_curve(mode) for mode in modes)


@pytest.mark.parametrize(
    ("low", "gap_rows", "counts"),
    [
        (100, 10**6, True),  # near the top, however long the gap is
        (100, 0, True),
        (101, LONG, True),
        (101, LONG + 1, False),
        (101, 0, False),  # the curve knows the rank
    ],
)
def test_ranks_near_the_top_and_in_short_gaps_are_counted(low: int, gap_rows: int, counts: bool) -> None:
    assert POLICY.should_count(low, gap_rows, LONG) is counts


def test_gaps_must_be_short_while_the_process_is_busy_or_a_request_wants_many_ranks() -> None:
    assert limit_gap_rows(LONG, crowded=False) == LONG
    assert limit_gap_rows(LONG, ranks=4, crowded=False) == LONG // 4
    assert limit_gap_rows(LONG, ranks=LONG, crowded=False) == SHORT_GAP_ROWS
    assert limit_gap_rows(LONG, crowded=True) == SHORT_GAP_ROWS
    assert [limit_gap_rows(3, ranks=2, crowded=crowded) for crowded in (False, True)] == [3, 3]
    assert limit_gap_rows(LONG, ranks=0, crowded=False) == LONG


def test_the_value_at_a_rank_comes_from_a_row_near_the_top_and_while_rows_are_left() -> None:
    assert POLICY.should_read_row(100, None, -1)
    assert POLICY.should_read_row(101, 7, 7)
    assert not POLICY.should_read_row(101, 8, 7)
    assert not POLICY.should_read_row(101, None, 7)


def test_a_count_by_default_reads_no_more_changes_than_rows() -> None:
    assert POLICY.limit_changes("exact") == POLICY.changes_max
    assert POLICY.limit_changes("auto") == COUNT_SLACK * 100 == POLICY.top_rows_max
    assert POLICY._replace(exact_top=0).limit_changes("auto") == DEFAULT_CHANGES_MAX
    assert POLICY._replace(changes_max=7).limit_changes("auto") == 7
