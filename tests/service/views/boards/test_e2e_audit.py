"""Test an operator's audit over HTTP and from the command line, and the metrics of audits."""

import asyncio

import pytest
from rankcurve.answers import Audit as AuditAnswer

from predictor import Curve, Knot
from service.commands.reading.ranks import show_audit
from storage.curves.curve_book import ServedCurve
from storage.curves.stored_curves import store_curve
from tests.service.cli_fake_service import run_at
from tests.service.real_service import Service

B = "/v1/leaderboards/b"
AUDIT = f"{B}/rankings/xp/audit"
OWNERS = 300


async def fill(service: Service) -> None:
    await service.board("b", {"name": "xp"}, {"name": "kills"}, predictor={"samples": 12, "exact_top": 0})
    await service.post("b", *({"owner": f"p{i}", "stats": {"xp": i * i}} for i in range(OWNERS)))
    await service.refresh("b", "xp")


async def store_wrong_curve(service: Service) -> None:
    """Store a curve that counts 9 entries too many."""
    context = service.context
    board = await context.catalog.find_board("b")
    served = context.curves.book.find_served(board.leaf, 0)
    assert served is not None
    first, *rest = served.curve.knots
    knots = [first, *(Knot(knot.key, knot.better_count + 9, knot.ties) for knot in rest)]
    wrong = Curve(knots, total=OWNERS + 9, as_of_us=served.curve.as_of_us, certificate=0.001)
    version = await context.store.write(lambda: store_curve(board.leaf, 0, wrong, changes=OWNERS))
    context.curves.book.serve_curve(ServedCurve(board.key, 0, board.gate.epoch, version, wrong, partition=0))


async def test_an_audit_answers_the_error_and_the_metrics_count_it(service: Service) -> None:
    await fill(service)
    found = await service.must("POST", AUDIT)
    assert (found["outcome"], found["owners"], found["certificate"]) == ("compared", 100, None)
    # The largest possible error is 0.5, because the curve estimates 3 for the owner with rank 2. The audit draws this
    # owner only by chance.
    assert 0 < found["mean_error"] <= found["p99_error"] <= found["worst_error"] <= 0.5
    assert (found["brackets_broken"], found["certificates_broken"], found["broken"]) == (0, 0, [])
    assert (await service.must("POST", f"{AUDIT}?owners=7"))["owners"] == 7
    figures = await service.figures()
    assert figures["rankcurve_audit_error_ratio_count",] == 107
    assert figures["rankcurve_audits_total", "compared"] == 2
    assert figures["rankcurve_audit_brackets_broken_total",] == 0


async def test_an_audit_of_a_wrong_curve_raises_the_alarm(service: Service) -> None:
    await fill(service)
    await store_wrong_curve(service)
    found = await service.must("POST", AUDIT)
    assert found["brackets_broken"] >= len(found["broken"]) > 0
    assert all(not each["low"] <= each["true_rank"] <= each["high"] for each in found["broken"])
    assert found["certificates_broken"] > 0
    figures = await service.figures()
    for name in ("brackets_broken", "certificates_broken"):
        assert figures[f"rankcurve_audit_{name}_total",] == found[name]
    assert figures["rankcurve_audit_certificate_ratio_count",] == 100


async def test_an_audit_that_cannot_run_is_refused_with_a_reason(service: Service) -> None:
    await fill(service)
    assert await service.refused("POST", f"{B}/rankings/kills/audit") == (404, "no_curve")
    assert await service.refused("POST", f"{B}/rankings/none/audit") == (404, "unknown_column")
    assert await service.refused("POST", "/v1/leaderboards/none/rankings/xp/audit") == (404, "unknown_board")
    assert await service.refused("POST", f"{AUDIT}?owners=101") == (400, "too_many_owners")
    assert await service.refused("POST", f"{AUDIT}?owners=0") == (400, "bad_request")
    await service.refresh("b", "kills")
    empty = await service.must("POST", f"{B}/rankings/kills/audit")
    assert (empty["outcome"], empty["owners"], empty["worst_error"]) == ("empty", 0, None)


async def test_the_command_fails_if_a_bracket_was_wrong(service: Service) -> None:
    await fill(service)
    await store_wrong_curve(service)
    done = await asyncio.to_thread(run_at, service.base, "audit", "b", "-c", "xp", code=1)
    assert "certificates were wrong" in done.stderr
    assert ["value", "true", "rank", "said", "between"] in [line.split() for line in done.stdout.splitlines()]


def test_the_command_says_when_nothing_was_compared(capsys: pytest.CaptureFixture[str]) -> None:
    show_audit(AuditAnswer(column="xp", outcome="changed"))
    assert capsys.readouterr().err == "nothing was compared: too much was posted since the curve was fitted\n"
