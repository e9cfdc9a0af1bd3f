"""A client for the rankcurve leaderboard service: post, read and follow rankings, lease resources, and rank offline.

    from rankcurve import Client

    with Client("http://127.0.0.1:8080") as game:
        game.post("arena", [{"owner": "ada", "stats": {"xp": 25}}])
        print(game.positions("arena", "ada"))

`Client` blocks until each answer arrives, and can be shared between threads. `AsyncClient` offers the same methods as
coroutines. Every error is a `RankcurveError`; `rankcurve.errors` shows the whole tree.

If you read the code, begin with `client`. Its logic is written only once, as programs that describe what to do without
doing it (`programs`). `transport` runs these programs, either by blocking a thread or on an event loop:

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
