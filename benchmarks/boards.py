"""Makes the boards for benchmarks: draws owners, values and posts from seeds, and sends the posts over HTTP.

A board of a given size is the same in every run and for every contestant, so a benchmark can compute the board's
correct answers from the seed.
"""

import asyncio
import hashlib
import json
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from benchmarks.client import BadAnswerError, Connection, call_service, for_each
from benchmarks.options import Options
from benchmarks.servers import PROJECT, serve_file

BOARD = "season"
COLUMN = "xp"
BATCH = 1000
FILL_CONNECTIONS = 4


def owner_at(index: int) -> str:
    """Return the owner at a 0-based index.

    An owner's name is as long as an id of a large chat service. requests.lua builds the same owners.
    """
    return f"10703857{index:011d}"


def draw_values(rows: int, column_index: int = 0) -> list[int]:
    """Return lognormal whole numbers with ties, one per owner, in the order of the owners' indexes."""
    draw = random.Random(11 + column_index).lognormvariate
    return [round(draw(10, 1.5)) for _ in range(rows)]


def column_names(columns: int) -> list[str]:
    return [COLUMN, *(f"{COLUMN}{index}" for index in range(2, columns + 1))]


def draw_batches(rows: int, *, seed: int, count: int, size: int = BATCH) -> list[list[tuple[str, int]]]:
    """Return batches of (owner, amount to add). Owners are random, and each occurs at most once in a batch."""
    rng = random.Random(seed)
    return [[(owner_at(index), rng.randint(1, 1000)) for index in rng.sample(range(rows), size)] for _ in range(count)]


def batch_body(batch: Iterable[tuple[str, int]], *, post_id_prefix: str | None = None, faceted: bool = False) -> bytes:
    """Return the body of a request POST …/posts for one batch.

    Posts get ids if `post_id_prefix` is given, and one of 100 values of the facet `org` if `faceted` is true.
    """
    posts: list[dict[str, object]] = [{"owner": name, "stats": {COLUMN: more}} for name, more in batch]
    if post_id_prefix is not None:
        for index, post in enumerate(posts):
            post["post_id"] = f"{post_id_prefix}/{index}"
    for post in posts if faceted else ():
        post["facets"] = {"org": str(post["owner"])[-2:]}
    return json.dumps({"posts": posts}).encode()


def board_spec(names: Sequence[str], *, merge: str = "sum", best: str = "high") -> dict[str, object]:
    """Return the body of PUT /v1/leaderboards/… for ranked columns with these names.

    All other fields have their defaults.
    """
    return {"columns": [{"name": name, "sorted": True, "merge": merge, "best": best} for name in names]}


async def send_batches(
    port: int,
    board: str,
    bodies: Iterable[bytes],
    *,
    size: int = 0,
    connections: int = FILL_CONNECTIONS,
    kind: str = "leaderboards",
) -> None:
    """Post the bodies.

    Raises BadAnswerError if a request fails, or if fewer than `size` posts of a body are applied.
    """

    async def send(connection: Connection, body: bytes) -> None:
        status, answer = await connection.call("POST", f"/v1/{kind}/{board}/posts", body)
        if status != 200 or answer.count(b'"applied"') < size:
            raise BadAnswerError(f"batch: {status} {answer[:300]!r}")

    await for_each(port, bodies, send, connections=connections)


def _posts_in_batches(named: Mapping[str, Sequence[object]], owners: Sequence[str]) -> Iterator[bytes]:
    names = list(named)
    posts = (
        {"owner": name, "stats": dict(zip(names, row, strict=True))}
        for name, row in zip(owners, zip(*named.values(), strict=True), strict=True)
    )
    while chunk := list(islice(posts, BATCH)):
        yield json.dumps({"posts": chunk}).encode()


async def create_board(port: int, board: str, body: Mapping[str, object]) -> None:
    await call_service(port, "PUT", f"/v1/leaderboards/{board}", body)


async def refresh_columns(port: int, board: str, columns: Iterable[str]) -> None:
    for column in columns:
        await call_service(port, "POST", f"/v1/leaderboards/{board}/rankings/{column}/refresh")


async def fill_board(
    port: int,
    board: str = BOARD,
    *,
    rows: int,
    columns: int = 1,
    owner: Callable[[int], str] = owner_at,
    draw: Callable[[int, int], Sequence[int]] = draw_values,
    fields: Mapping[str, object] | None = None,
    refresh: bool = True,
) -> None:
    """Create a board, post the values of every owner, and refresh the curves. Raises BadAnswerError.

    `owner` returns the owner at an index. `draw` returns the values of the column at an index. `fields` are further
    fields of the board. A front end without a job process cannot refresh.
    """
    print(f"   filling {rows:,} rows x {columns} over HTTP", end="", flush=True)
    begun = time.perf_counter()
    names = column_names(columns)
    await create_board(port, board, {**board_spec(names), **(fields or {})})
    named = {name: draw(rows, index) for index, name in enumerate(names)}
    await send_batches(port, board, _posts_in_batches(named, [owner(index) for index in range(rows)]))
    took_s = time.perf_counter() - begun
    print(f": {took_s:.0f} s, {rows / took_s:,.0f} rows/s", flush=True)
    await refresh_columns(port, board, names if refresh else ())


def prepare_store(options: Options, folder: Path, *, rows: int, columns: int = 1) -> Path:
    """Return the path of a SQLite file in `folder` whose BOARD is filled and has fresh curves."""

    def fill(store: Path) -> None:
        with serve_file(store) as server:
            asyncio.run(fill_board(server.port, rows=rows, columns=columns))

    return keep_store(options, folder, f"{rows}x{columns}", fill)


def keep_store(options: Options, folder: Path, name: str, fill: Callable[[Path], None]) -> Path:
    """Return the path of a SQLite file in `folder` that `fill` has filled, now or in an earlier run.

    If `options.boards` names a folder, copies are kept there for later runs.
    """
    store = folder / f"{name}.db"
    if options.boards is None:
        fill(store)
        return store
    # The name contains a hash of the storage code, because different code may have made the tables with another layout.
    parts = b"".join(path.read_bytes() for path in sorted((PROJECT / "storage").rglob("*.py")))
    kept = options.boards / f"{name}-{hashlib.sha256(parts).hexdigest()[:12]}.db"
    if kept.exists():
        copy_store(kept, store)
    else:
        fill(store)
        options.boards.mkdir(parents=True, exist_ok=True)
        copy_store(store, kept)
    return store


def copy_store(source: Path, target: Path) -> None:
    """Copy a SQLite file that no process has open, together with its write-ahead log, if there is a log."""
    for suffix in ("-wal", ""):
        part = source.with_name(source.name + suffix)
        if part.exists():
            shutil.copyfile(part, target.with_name(target.name + suffix))
