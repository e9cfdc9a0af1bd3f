"""A client of the leaderboard service rankcurve: it posts, reads, follows, leases, and ranks offline.

    from rankcurve import Client

    with Client("http://127.0.0.1:8080") as game:
        game.post("arena", [{"owner": "ada", "stats": {"xp": 25}}])
        print(game.positions("arena", "ada"))

`Client` waits for each answer, and may be used from several threads. `AsyncClient` has the same methods as coroutines.
Every error is a `RankcurveError`; `rankcurve.errors` has the whole tree.

Begin with `client`. The logic is written once, as programs that say what to do and do nothing themselves (`programs`).
`transport` runs them, waiting in a thread or on an event loop:

    client | post_buffer | leases | offline_curve      what a game uses
      retries | spool | event_stream                    what they share
        programs | answers | errors                     words that all of them speak
    transport | tokens                                  send requests with httpx, and run programs
"""

from .answers import OwnerPosition, Page, Position, PostResult, RankedEntry, StreamEvent
from .client import AsyncClient, Client
from .errors import ApiError, RankcurveError, UnexpectedAnswerError, UnreachableError
from .leases import AsyncLeases, Lease, Leases
from .offline_curve import Bracket, OfflineCurve, OfflineTier
from .post_buffer import AsyncPostBuffer, PostBuffer, Receipt
from .retries import Retries

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncLeases",
    "AsyncPostBuffer",
    "Bracket",
    "Client",
    "Lease",
    "Leases",
    "OfflineCurve",
    "OfflineTier",
    "OwnerPosition",
    "Page",
    "Position",
    "PostBuffer",
    "PostResult",
    "RankcurveError",
    "RankedEntry",
    "Receipt",
    "Retries",
    "StreamEvent",
    "UnexpectedAnswerError",
    "UnreachableError",
]
