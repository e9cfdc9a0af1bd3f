"""Test posts with terms, which are applied only if the stored value meets them, against a plain model."""

import random
from operator import gt, lt

from storage.records import Board, Merge, Post, PostStatus, PostTerms, TracedOutcome
from tests.storage.deployment import Deployment, part, ranked

OWNERS = ("ada", "bob", "cyd")


def settle(stored: int | None, value: int | None, terms: PostTerms) -> tuple[bool, int | None]:
    """Return whether a value meets the terms, and what is stored afterwards."""
    if stored is None:
        return (False, None) if terms.present or terms.equals is not None else (True, value)
    if value is not None and terms.adds:
        value += stored
    bounds = [(terms.above, gt), (terms.below, lt)]
    met = not terms.absent and terms.equals in (None, stored)
    met = met and (value is None or all(is_beyond(value, stored) for asked, is_beyond in bounds if asked))
    return met, value if met else stored


def draw_post(rng: random.Random, deployment: Deployment, board: Board) -> Post:
    value = None if rng.random() < 0.15 else rng.randint(-3, 3)
    adds, absent, present, above, below = (rng.random() < 0.3 for _ in range(5))
    overwrites = value is None or rng.random() < 0.5
    made = part(board, {}, {"xp": value}) if overwrites or value is None else part(board, {"xp": value})
    post = deployment.post(rng.choice(OWNERS), made)
    post.terms = PostTerms(adds, absent, present, above, below, rng.choice([None, None, 0, 2]))
    post.tells_before = True
    return post


async def test_posts_with_terms_do_what_a_plain_model_does(deployment: Deployment) -> None:
    rng, plain = random.Random(5), dict[str, int | None]()
    board = await deployment.create("b", ranked("xp", merge=Merge.LAST))
    for _ in range(30):
        posts = [draw_post(rng, deployment, board) for _ in range(rng.randint(1, 12))]
        for post, [outcome] in zip(posts, await deployment.apply(*posts), strict=True):
            assert post.terms is not None
            [change] = post.parts[0].changes
            before = plain.get(post.owner)
            met, after = settle(before, change.value, post.terms)  # type: ignore[arg-type]
            assert (outcome.stats is not None) is met
            if met:
                assert isinstance(outcome, TracedOutcome)
                assert outcome.stats == [after]
                plain[post.owner] = after
            else:
                assert (outcome.status, outcome.error) == (PostStatus.UNCHANGED, None)
        for owner in OWNERS:
            assert await deployment.value(board, owner) == plain.get(owner)
        values = [value for value in plain.values() if value is not None]
        assert (await deployment.totals(board)).get(0, 0) == len(values)


async def test_a_board_is_rebuilt_from_posts_with_terms(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp", merge=Merge.LAST))
    for value, terms in ((5, None), (2, PostTerms(adds=True)), (4, PostTerms(above=True)), (9, PostTerms(absent=True))):
        post = deployment.post("ada", part(board, {"xp": value}))
        post.terms = terms
        await deployment.apply(post)
    assert await deployment.value(board, "ada") == 7
    await deployment.rebuild()
    assert await deployment.value(await deployment.find(), "ada") == 7
