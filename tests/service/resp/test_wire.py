"""Test the bytes of the port for Redis clients: commands in any pieces, scores, and answers in both versions."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.resp.sorted_set_reads import parse_bounds
from service.resp.wire import (
    CommandParser,
    Map,
    Pairs,
    ProtocolFault,
    Refusal,
    Score,
    Status,
    encode_answer,
    parse_index,
    parse_score,
)
from tests.storage.deployment import ranked

COLUMN = replace(ranked("score", scale=3), min_scaled=-(10**9), max_scaled=10**9)


def encode(words: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


@given(
    commands=st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=5), max_size=5),
    sizes=st.lists(st.integers(1, 30), min_size=1),
)
def test_commands_arrive_in_any_pieces(commands: list[list[bytes]], sizes: list[int]) -> None:
    parser, sent, found, number = CommandParser(), b"".join(map(encode, commands)), list[list[bytes]](), 0
    while sent:
        size = sizes[number % len(sizes)]
        found += parser.feed(sent[:size])
        sent, number = sent[size:], number + 1
    assert found == commands
    assert parser.pending_bytes == 0


def test_a_long_array_is_refused_before_hiredis_allocates_it() -> None:
    for pieces in (
        [b"*999999\r\n"],
        [b"*9", b"99999"],
        [encode([b"PING"]), b"*1000000000\r\n"],
        [b"*2\r\n*900000000\r\n"],
    ):
        parser = CommandParser()
        for piece in pieces[:-1]:
            parser.feed(piece)
        with pytest.raises(ProtocolFault):
            parser.feed(pieces[-1])


@given(data=st.binary(max_size=200))
def test_any_bytes_are_commands_or_a_fault(data: bytes) -> None:
    try:
        commands = CommandParser().feed(data)
    except ProtocolFault:
        return
    assert all(isinstance(word, bytes) for command in commands for word in command)


@given(
    value=st.fractions(-(10**6), 10**6, max_denominator=10**4),
    rounding=st.sampled_from(["refuse", "down", "up", "nearest"]),
)
def test_scores_are_exact_or_rounded(value: Fraction, rounding: str) -> None:
    scaled = Fraction(repr(float(value))) * 10**COLUMN.scale
    text = repr(float(value)).encode()
    if rounding == "refuse" and scaled.denominator != 1:
        with pytest.raises(Refusal):
            parse_score(text, COLUMN, rounding)
        return
    found = parse_score(text, COLUMN, rounding)
    assert abs(found - scaled) < 1
    assert rounding != "down" or found <= scaled
    assert rounding != "up" or found >= scaled
    assert rounding != "nearest" or found == round(scaled)


@pytest.mark.parametrize("text", [b"x", b"", b"nan", b"inf", b"-inf", b"1,5", b"0x10", b"\xff", b"1e999999999"])
def test_what_is_no_score_is_refused(text: bytes) -> None:
    with pytest.raises(Refusal):
        parse_score(text, COLUMN, "nearest")


@given(bound=st.integers(-3_000, 3_000), excluded=st.booleans(), value=st.integers(-3_000, 3_000))
def test_bounds_contain_what_they_say(bound: int, excluded: bool, value: int) -> None:
    text = b"(" * excluded + f"{bound / 2_000}".encode()
    least, _ = parse_bounds(text, b"+inf", COLUMN)
    _, most = parse_bounds(b"-inf", text, COLUMN)
    exact = Fraction(bound, 2)
    assert (value >= least) == (value > exact if excluded else value >= exact)
    assert (value <= most) == (value < exact if excluded else value <= exact)


@pytest.mark.parametrize("text", [b"", b"-", b"1.5", b"x", b"9" * 30, "²".encode()])
def test_what_is_no_index_is_refused(text: bytes) -> None:
    with pytest.raises(Refusal):
        parse_index(text)


def test_answers_have_the_form_of_each_version() -> None:
    pairs, facts = Pairs([(b"ada", Score(1500, 3))]), Map({"proto": 3})
    answers = [1, b"a\r\n", None, "zoë", Status("OK"), Score(-250, 2), [1, [None]], pairs, facts, Refusal("ERR a\r\nb")]
    assert b"".join([encode_answer(each, 2) for each in answers]) == (
        b":1\r\n$3\r\na\r\n\r\n$-1\r\n$4\r\nzo\xc3\xab\r\n+OK\r\n$4\r\n-2.5\r\n*2\r\n:1\r\n*1\r\n$-1\r\n"
        b"*2\r\n$3\r\nada\r\n$3\r\n1.5\r\n*2\r\n$5\r\nproto\r\n:3\r\n-ERR a  b\r\n"
    )
    assert b"".join([encode_answer(each, 3) for each in answers]) == (
        b":1\r\n$3\r\na\r\n\r\n_\r\n$4\r\nzo\xc3\xab\r\n+OK\r\n,-2.5\r\n*2\r\n:1\r\n*1\r\n_\r\n"
        b"*1\r\n*2\r\n$3\r\nada\r\n,1.5\r\n%1\r\n$5\r\nproto\r\n:3\r\n-ERR a  b\r\n"
    )
