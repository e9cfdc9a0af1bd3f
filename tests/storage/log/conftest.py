"""Choose the table layout of the boards that the tests of this folder post to."""

import pytest

from storage.records import TableSharing


@pytest.fixture
def table() -> TableSharing:
    """Give each board a table of its own, because shared tables make no difference here."""
    return TableSharing.OWN
