"""The table layout of the boards that the tests of this folder close."""

import pytest

from storage.records import TableSharing


@pytest.fixture
def table() -> TableSharing:
    """Give boards tables of their own: what is tested here is the same in shared tables."""
    return TableSharing.OWN
