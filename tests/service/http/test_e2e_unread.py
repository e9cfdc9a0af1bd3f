"""Callers that never read their answers, or that give up their requests, cost the service little."""

import asyncio

from storage.posting.waiting_posts import GATHER_TURNS
from storage.records import BoardPost, ColumnChange, Post
from tests.service.real_service import Service


async def test_the_writer_survives_a_request_that_is_cancelled_while_it_gathers(service: Service) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    writer = service.context.posting.writer
    board = await service.context.catalog.find_board("b")
    post = Post("a", [BoardPost(board, [ColumnChange(0, 1, False)])], None, None, "")
    for turns in range(GATHER_TURNS + 2):
        given_up = asyncio.ensure_future(writer.submit([post]))
        for _ in range(turns):
            await asyncio.sleep(0)
        given_up.cancel()
        for _ in range(2 * GATHER_TURNS + 4):
            await asyncio.sleep(0)
        assert writer.alive
        answer = await service.call("POST", "/v1/leaderboards/b/posts", {"owner": "b", "stats": {"xp": 1}})
        assert answer.status == 200


async def test_unread_answers_delay_the_further_requests_of_their_connection(service: Service) -> None:
    await service.board("b", {"name": "xp"})
    await service.post("b", *({"owner": f"owner-{i:06}", "stats": {"xp": i}} for i in range(400)))
    page = b"GET /v1/leaderboards/b/rankings/xp?limit=400 HTTP/1.1\r\nHost: localhost\r\n\r\n"  # each answer has 50 kB
    port = int(service.base.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(page * 2000)

    def answered() -> float:
        lines = service.context.metrics.text().decode().splitlines()
        lines = [line for line in lines if line.startswith('rankcurve_requests_total{route="page"')]
        return float(lines[0].split()[-1]) if lines else 0.0

    before, after = -1.0, 0.0
    while before != after or not after:  # wait until the service answers no further request of this connection
        before = after
        for _ in range(50):  # send requests on other connections; each request uses the store
            await service.call("GET", "/readyz")
        after = answered()
    assert 0 < after < 1000  # only as many answers as fit into the buffers of the sockets and of the service
    writer.close()


async def test_no_row_around_an_owner_has_a_rank_past_the_ends_of_the_board(service: Service) -> None:
    await service.board("b", {"name": "xp"}, predictor={"samples": 2, "exact_top": 1})
    # The curve is a straight line. Most values lie near the lowest one, so the line gives them ranks near the end.
    values = [0, *range(1, 20), 1000]
    await service.post("b", *({"owner": f"o{i:02}", "stats": {"xp": value}} for i, value in enumerate(values)))
    await service.refresh("b", "xp")
    for owner in ("o01", "o19"):
        page = await service.get(f"/v1/leaderboards/b/entries/{owner}/around?column=xp&better=2&worse=3")
        ranks = [entry["rank"] for entry in page["entries"]]
        assert 1 <= min(ranks) <= max(ranks) <= page["total"]
        assert page["next"] is not None or ranks[-1] == page["total"]
        assert page["prev"] is not None or ranks[0] == 1


async def test_a_row_is_exact_only_at_the_rank_that_the_curve_gave_it(service: Service) -> None:
    await service.board("b", {"name": "xp"}, predictor={"samples": 100, "exact_top": 0})
    await service.post("b", *({"owner": f"o{i:02}", "stats": {"xp": 100 - i}} for i in range(10)))
    await service.refresh("b", "xp")
    await service.post("b", *({"owner": f"n{i:02}", "stats": {"xp": 1000 + i}} for i in range(10)))
    page = await service.get("/v1/leaderboards/b/entries/o02/around?column=xp&better=5&worse=1")
    own = next(entry for entry in page["entries"] if entry["owner"] == "o02")
    # The rank was 3 when the curve was fitted and is 13 now. Only the current rank may be called exact.
    assert own["rank"] == 13 or not own["exact"]
