"""Test the list of rules that refuse posts: its form, its order, and that a new rule holds for every way to post."""

from typing import Any

import pytest

from storage.errors import PostRejectedError
from storage.posting import rules
from storage.posting.post_ids import RememberedPost
from storage.posting.rules import RULES, Attempt, Rule, find_closure, find_refusal
from storage.records import EntryRules, Gate, PartOutcome, PostStatus
from tests.storage.boards.test_families import make_family, make_family_post
from tests.storage.deployment import NOW_US, Deployment, part, ranked

DAY_US = 86_400_000_000
REFUSED_US = NOW_US // DAY_US * DAY_US - 10 * DAY_US


def refuse_midsummer(attempt: Attempt) -> PostRejectedError | None:
    is_day = attempt.at_us // DAY_US == REFUSED_US // DAY_US
    return PostRejectedError("no posts on this day", pointer="/at") if is_day else None


@pytest.mark.unit
def test_every_rule_judges_a_fact_of_an_attempt() -> None:
    assert {rule.given for rule in RULES} <= set(Attempt._fields)


@pytest.mark.unit
def test_rules_are_asked_in_one_order() -> None:
    known = RememberedPost(1, "", "other", [PartOutcome(PostStatus.VOIDED)])
    facts: list[tuple[str, Any]] = [
        ("ahead_s_max", 1.0), ("known", known), ("is_merged", True), ("deleted", "deleted"), ("is_emptied", True),
        ("gate", Gate(opens_us=NOW_US * 3, closed_us=1)), ("reset_us", NOW_US * 3),
    ]  # fmt: skip
    given: dict[str, Any] = dict(facts)
    attempt, found = Attempt(NOW_US * 2, NOW_US, "b", **given), []
    while (error := find_refusal(attempt)) is not None:
        found.append(type(error).__name__)
        del given[facts[len(found) - 1][0]]
        attempt = Attempt(NOW_US * 2, NOW_US, "b", **given)
    assert found == [
        "AtInFutureError", "PostVoidedError", "OwnerMergedError", "UnknownBoardError", "BeforeResetError",
        "PeriodClosedError", "BeforeResetError",
    ]  # fmt: skip


@pytest.mark.unit
def test_entry_rules_judge_who_posts_and_who_joins() -> None:
    rules = EntryRules(join=True, posts_max=2, owners_max=3)
    stranger = Attempt(None, NOW_US, "b", entry=rules, owners=3)
    entrant = stranger._replace(is_entrant=True, posts=1)
    open_to_all = stranger._replace(entry=EntryRules(join=False, posts_max=None, owners_max=3))
    for attempt, error in (
        (stranger, "NotJoinedError"), (stranger._replace(joins=True), "BoardFullError"), (entrant, None),
        (entrant._replace(posts=2), "NoPostsLeftError"), (entrant._replace(posts=2, joins=True), None),
        (open_to_all, "BoardFullError"), (open_to_all._replace(owners=2), None),
        (stranger._replace(entry=EntryRules(False, 1, None), owners=9), None),
    ):  # fmt: skip
        found = find_refusal(attempt)
        assert (found and type(found).__name__) == error


async def test_a_new_rule_holds_for_every_way_to_post(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    board = await deployment.create("b", ranked("xp"))
    family = await make_family(deployment)
    [of_family] = await deployment.make_boards("all")
    monkeypatch.setattr(rules, "RULES", (*RULES, Rule(refuse_midsummer)))
    for at_us, refused in ((REFUSED_US, True), (REFUSED_US + DAY_US, False)):
        direct = deployment.post("ada", part(board, {"xp": 1}), at_us=at_us)
        to_family = make_family_post(deployment, family, "ada", 1, of_family)
        to_family.at_us = at_us
        for [outcome] in await deployment.apply(direct, to_family):
            assert isinstance(outcome.error, PostRejectedError) == refused
        assert (find_closure(direct, NOW_US) is not None) == refused
    once = deployment.post("bob", part(board, {"xp": 1}), post_id="p", at_us=REFUSED_US + DAY_US)
    assert (await deployment.apply_one(once)).status is PostStatus.APPLIED
    deployment.clock.now_us = REFUSED_US
    assert (await deployment.apply_one(once)).status is PostStatus.DUPLICATE, "a retry is judged by its id alone"
