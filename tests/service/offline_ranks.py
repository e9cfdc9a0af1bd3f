"""Load the function that docs/curve.md offers to clients, from the file that clients copy into their programs."""

import importlib.util
from collections.abc import Callable

from tests.service.real_service import ROOT


def rank_of() -> Callable[..., tuple[int, int, int]]:
    """Return the function `rank_of(document, value, reached_at)`. The function returns (rank, low, high)."""
    spec = importlib.util.spec_from_file_location("rank_offline", ROOT / "docs" / "rank_offline.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., tuple[int, int, int]] = module.rank_of
    return found
