"""Test that the metrics of a real service count exactly the requests that the test sent."""

from service.views.posts.posts import BATCH_POSTS_MIN
from tests.service.real_service import Figures, Service

B = "/v1/leaderboards/b"


def find_growth(before: Figures, after: Figures, prefix: str) -> dict[tuple[str, ...], float]:
    """Return by how much the values of a metric grew. Leave out values that did not grow."""
    grown = {key: value - before.get(key, 0) for key, value in after.items() if key[0] == prefix}
    return {key[1:]: value for key, value in grown.items() if value}


async def test_posts_are_counted_by_outcome_whether_sent_singly_or_in_a_list(service: Service) -> None:
    await service.board("b", {"name": "xp", "merge": "max"})
    before = await service.figures()
    post = {"owner": "a", "stats": {"xp": 5}, "post_id": "id"}
    worse, wrong = {"owner": "a", "stats": {"xp": 4}}, {"owner": "a", "stats": {"none": 1}}
    taken = {"owner": "a", "stats": {"xp": 6}, "post_id": "id"}
    await service.post("b", post, post, worse, worse, wrong, taken)
    await service.must("POST", f"{B}/posts", post)
    await service.refused("POST", f"{B}/posts", wrong)
    await service.refused("POST", f"{B}/posts", taken)
    await service.refused("POST", f"{B}/posts", b"{")
    await service.must("POST", "/v1/posts", {"posts": [{**worse, "boards": ["b"]}, {**wrong, "boards": ["b", "no"]}]})
    await service.refused("POST", "/v1/posts", {**wrong, "boards": ["b"]})
    after = await service.figures()
    outcomes = {("applied",): 1, ("duplicate",): 2, ("unchanged",): 3, ("rejected",): 6}
    assert find_growth(before, after, "rankcurve_posts_total") == outcomes
    assert find_growth(before, after, "rankcurve_write_batch_posts_sum") == {(): 8}
    assert find_growth(before, after, "rankcurve_write_batch_posts_count") == {(): 4}
    assert find_growth(before, after, "rankcurve_write_seconds_count") == {(): 4}
    assert after["rankcurve_write_queue_posts",] == 0
    assert after["rankcurve_write_conflicts_total",] == 0


async def test_reads_are_counted_by_route_and_method(service: Service) -> None:
    await service.board("b", {"name": "xp"}, {"name": "kills"}, predictor={"samples": 5, "exact_top": 5})
    await service.post("b", *({"owner": f"p{i}", "stats": {"xp": i, "kills": i}} for i in range(100)))
    await service.refresh("b", "xp")
    before = await service.figures()
    await service.get(f"{B}/entries/p99/positions")
    await service.get(f"{B}/entries/p50/positions?columns=xp&rank=estimate")
    await service.get(f"{B}/entries/p50/positions?columns=xp&rank=exact")
    await service.get(f"{B}/entries/p0/positions?columns=xp")
    await service.get(f"{B}/entries/p50")
    await service.get(f"{B}/rankings/xp?limit=7")
    await service.get(f"{B}/rankings/kills/positions?values=1,2,3")
    await service.get(f"{B}/entries/p50/around?column=kills")
    await service.must("POST", f"{B}/entries/lookup", {"owners": ["p1", "p2"], "column": "kills"})
    assert find_growth(before, await service.figures(), "rankcurve_reads_total") == {
        ("count", "positions"): 2, ("gap", "positions"): 1, ("curve", "positions"): 1, ("knot", "positions"): 1,
        ("row", "entry"): 1, ("count", "page"): 7,
        ("count", "rankings"): 3, ("count", "around"): 1, ("count", "owners"): 2,
    }  # fmt: skip


async def test_the_metrics_show_curves_and_refreshes(service: Service) -> None:
    await service.board("b", {"name": "xp"}, {"name": "kills"}, predictor={"samples": 5})
    empty = await service.figures()
    assert (empty["rankcurve_curve_knots_count",], empty["rankcurve_curve_age_seconds_max",]) == (0, 0)
    await service.post("b", *({"owner": f"p{i}", "stats": {"xp": i, "kills": i}} for i in range(100)))
    await service.refresh("b", "xp", "kills", "xp")
    after = await service.figures()
    assert after["rankcurve_refresh_seconds_count",] == 3
    assert 0 < after["rankcurve_refresh_seconds_sum",] < 30
    assert after["rankcurve_curve_knots_count",] == 2
    assert 4 <= after["rankcurve_curve_knots_sum",] <= 10
    assert 0 < after["rankcurve_curve_age_seconds_max",] < 30
    assert after["rankcurve_refresh_failures_total",] == 0
    await service.must("DELETE", B)
    assert (await service.figures())["rankcurve_curve_knots_count",] == 0


async def test_the_time_of_a_batch_is_not_counted_among_the_short_requests_of_its_route(service: Service) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    posts = [{"owner": f"p{number}", "stats": {"xp": 1}} for number in range(BATCH_POSTS_MIN)]
    before = await service.figures()
    await service.post("b", *posts[1:])
    await service.post("b", *posts)
    await service.must("POST", f"{B}/posts?mode=queued", {"posts": posts})
    grown = find_growth(before, await service.figures(), "rankcurve_request_seconds_count")
    assert {route: count for (route,), count in grown.items() if route.startswith("post")} == {"post": 1, "posting": 2}
