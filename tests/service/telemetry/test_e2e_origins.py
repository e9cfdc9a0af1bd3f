"""Test that every process that works for a request logs the request's id and trace id."""

from tests.service.real_service import Caller, Spawn

XP = {"name": "xp", "merge": "sum"}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SENT = {"X-Request-Id": "operator-1", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
KNOWN = {"request_id": "operator-1", "trace_id": TRACE}


async def test_the_job_process_logs_a_refresh_with_the_id_of_its_request(store_url: str, spawn: Spawn) -> None:
    front_end = spawn("--store", store_url, "--jobs", "none", "--set", "log_sample_ratio=1").ready()
    jobs = spawn("--store", store_url, command=("jobs",))
    jobs.await_line("working")
    async with Caller(front_end.url) as caller:
        await caller.board("b", XP)
        await caller.post_xp("b", ada=1)
        answer = await caller.call("POST", "/v1/leaderboards/b/rankings/xp/refresh", headers=SENT)
    assert (answer.status, answer.headers["X-Request-Id"]) == (200, "operator-1")
    assert front_end.await_line("request", view="refresh_curve", **KNOWN)["status"] == 200
    assert jobs.await_line("refreshed_on_demand", **KNOWN)["board"] == "b"


async def test_every_process_that_runs_an_operation_logs_the_id_of_its_request(store_url: str, spawn: Spawn) -> None:
    node = spawn("--store", store_url, "--workers", "2").ready()
    async with Caller(node.url) as caller:
        answer = await caller.call("GET", "/jolokia/exec/rankcurve:type=Job,name=watch/run", headers=SENT)
    assert answer.body["value"] == 3
    for process in ("worker1", "worker2", "jobs1"):
        assert not any(line.get("process") == process and line["event"] == "error" for line in node.lines)
    told = {node.await_line("managed_action", **KNOWN)["process"] for _ in range(3)}
    assert told == {"worker1", "worker2", "jobs1"}
