"""Make a board on which a few owners passed the best value after the curve was fitted.

The curve of such a board is good, but has a large certificate. The board is made by posts and a refresh, as users make
boards.
"""

from typing import Any

from tests.service.real_service import Caller

OWNERS = 2_000
CLIMBERS = 6
EXACT_TOP = 100


async def climbed_board(url: str, board: str) -> dict[str, Any]:
    """Make the board, and wait until the curve of `xp` counts the owners who climbed. Return the state of the curve."""
    async with Caller(url) as caller:
        predictor = {"samples": 60, "exact_top": EXACT_TOP, "method": "scan"}
        await caller.board(board, {"name": "xp"}, predictor=predictor)
        await caller.post(board, *({"owner": f"o{n}", "stats": {"xp": 7 * n + n % 5}} for n in range(OWNERS)))
        await caller.refresh(board, "xp")
        climbers = [{"owner": f"o{300 * n}", "stats": {"xp": 10**6 + n}} for n in range(CLIMBERS)]
        await caller.post(board, *climbers)
        state: dict[str, Any] = (await caller.wait_folded(board, "xp"))["xp"]
        return state
