"""A match server that plays matches and posts the results of their players.

python examples/match_server.py http://127.0.0.1:8080 1000
"""

import random
import sys
from collections.abc import Iterator

from rankcurve import Client


def play(matches: int) -> Iterator[tuple[str, int, str]]:
    """Yield the players of each match, with the xp that each has won and the lap time in seconds."""
    for _ in range(matches):
        for player in random.sample(range(100), 4):
            yield f"player-{player}", random.randrange(1, 50), f"{random.uniform(58, 90):.3f}"


url, matches = sys.argv[1], int(sys.argv[2])
with Client(url) as client:
    client.create_board("arena", "xp:sum", "best_lap:min.3")
    # The folder keeps the posts until the service has them, even if this process or the service is killed.
    with client.buffer("arena", spool="arena-posts") as posts:
        for player, xp, lap in play(matches):
            posts.submit(player, {"xp": xp, "best_lap": lap})
    print("best lap:", client.top("arena", 1, "best_lap")[0])
