"""Test when an answer is compressed, and that its body is the same afterwards."""

import pytest

from service.http.fast_json import accepts_gzip


@pytest.mark.parametrize("header", ["gzip", "GZIP", "deflate, gzip;q=0.1", "br, *", "x-gzip", "gzip;q=1.0, identity"])
def test_a_caller_that_names_gzip_or_any_encoding_accepts_it(header: str) -> None:
    assert accepts_gzip(header)


@pytest.mark.parametrize("header", ["", "identity", "br", "gzip;q=0", "gzip; q=0.0, *", "*;q=0", "gzipped"])
def test_a_caller_that_does_not_name_gzip_or_gives_it_no_weight_does_not_accept_it(header: str) -> None:
    assert not accepts_gzip(header)
