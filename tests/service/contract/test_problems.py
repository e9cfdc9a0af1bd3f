"""Test that every problem has one code, one status and one form."""

import msgspec
import pytest

from docs.problem_advice import ADVICE
from jobs import errors as job_errors
from service.contract.problems import (
    CODES,
    STORAGE_CODES,
    ProblemError,
    clip_text,
    problem_of,
)
from storage import errors as storage_errors


def test_a_problem_has_the_members_of_rfc_9457_and_of_the_contract() -> None:
    body = msgspec.json.decode(ProblemError("unknown_owner", "no entry of 'x'", pointer="owner").to_json())
    assert body == {
        "type": "urn:rankcurve:problem:unknown_owner", "title": "No entry for this owner", "status": 404,
        "detail": "no entry of 'x'", "code": "unknown_owner",
        "errors": [{"pointer": "owner", "detail": "no entry of 'x'"}],
    }  # fmt: skip


def test_every_code_of_a_storage_error_is_known() -> None:
    assert set(STORAGE_CODES.values()) <= set(CODES)


def test_every_code_has_advice_and_those_that_pass_by_themselves_say_to_wait() -> None:
    assert ADVICE.keys() == CODES.keys()
    for code, meaning in CODES.items():
        assert meaning.title[0].isupper(), code
        assert ADVICE[code][0].isupper(), code
        assert ADVICE[code].endswith("."), code
        assert ("`Retry-After`" in ADVICE[code]) == meaning.retried, code
    assert {meaning.status for meaning in CODES.values() if meaning.retried} == {429, 503}
    assert {code for code, meaning in CODES.items() if meaning.status == 429 and not meaning.retried} == set()


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (storage_errors.UnknownBoardError(), "unknown_board", 404),
        (storage_errors.UnknownColumnError(), "unknown_column", 404),
        (storage_errors.QueueFullError(), "queue_full", 429),
        (storage_errors.StoreBusyError(), "store_busy", 503),
        (storage_errors.StoreDamagedError(), "store_damaged", 500),
        (storage_errors.StoreFullError(), "store_full", 507),
        (storage_errors.WaitTooLongError(), "timeout", 503),
        (storage_errors.PostRejectedError(), "post_rejected", 422),
        (job_errors.NoJobProcessError(), "no_job_process", 503),
        (TimeoutError(), "timeout", 503),
        (ZeroDivisionError("inside"), "internal", 500),
    ],
)
def test_an_error_of_a_lower_layer_has_the_code_of_its_nearest_class(error: Exception, code: str, status: int) -> None:
    problem = problem_of(error)
    assert (problem.code, problem.status) == (code, status)


def test_without_a_detail_the_docstring_of_the_class_is_the_detail_without_capital_and_period() -> None:
    assert problem_of(storage_errors.UnknownBoardError()).detail == "no such leaderboard"
    assert problem_of(job_errors.NoJobProcessError()).detail == "no job process is running to refresh the curve"


def test_a_clipped_text_of_a_caller_is_short_and_encodable() -> None:
    assert len(clip_text("x" * 1000)) == 81
    assert clip_text("\ud800").encode("utf-8") == b"\\ud800"
