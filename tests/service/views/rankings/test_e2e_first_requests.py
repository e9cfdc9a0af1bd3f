"""While a service has entries but no curve yet, it counts the rank in every answer, and no rank is 0."""

import asyncio
import random

from tests.service.real_service import Service

B = "/v1/leaderboards/b"


async def test_a_restarted_service_counts_ranks_from_its_first_request_on(service: Service) -> None:
    await service.board("b", {"name": "xp"}, {"name": "lap", "best": "low"}, predictor={"exact_top": 5})
    rng = random.Random(1)
    values = {f"p{i}": rng.randrange(2000) for i in range(3000)}
    await service.post("b", *({"owner": owner, "stats": {"xp": xp, "lap": xp}} for owner, xp in values.items()))
    await service.restart()
    asked = rng.sample(sorted(values), 60)
    paths = [f"{B}/entries/{owner}/positions{mode}" for owner in asked for mode in ("", "?rank=estimate")]
    others = ("rankings/xp", "rankings/xp/values?ranks=1,2999&percentiles=50", "rankings/lap/positions?values=5", "")
    paths += [f"{B}/{path}".rstrip("/") for path in others]
    paths += [f"{B}/entries/{owner}/around?column=xp" for owner in asked[:20]]
    answers = await asyncio.gather(*(service.call("GET", path) for path in paths))
    assert {answer.status for answer in answers} == {200}
    for answer in answers:
        for position in answer.body.get("positions", []):
            sign = -1 if position["column"] == "xp" else 1
            better = sum(sign * value < sign * position["value"] for value in values.values())
            assert (position["rank"], position["exact"], position["method"]) == (better + 1, True, "count")
        if "column" in answer.body:
            assert all(row["rank"] >= 1 and row["exact"] for row in answer.body["entries"])


async def test_the_schedule_fits_the_first_curve_and_no_request_waits_for_it(service: Service) -> None:
    await service.board("b", {"name": "xp"}, predictor={"refresh_seconds": 1, "exact_top": 0})
    await service.post("b", *({"owner": f"p{i}", "stats": {"xp": i}} for i in range(50)))
    methods = ["count"]
    async with asyncio.timeout(60):
        while methods[-1] == "count":
            (found,) = (await service.get(f"{B}/entries/p7/positions"))["positions"]
            assert (found["rank"], found["exact"]) == (43, True)
            methods.append(found["method"])
    assert methods[-1] == "knot"
    assert (await service.get(f"{B}/rankings/xp/curve"))["total"] == 50
