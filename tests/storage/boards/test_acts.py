"""Test how acts are stored, listed in pages, and made nameless."""

from functools import partial

from storage.boards.acts import Act, forget_owner, list_acts, list_hidden, record_act, store_acts
from storage.boards.profiles import remove_profile, store_profile
from storage.store import count_changed
from tests.storage.deployment import Deployment

HIDE = Act(5, "owner.hidden", "k1", "ada", None, "cheats")


async def list_all(deployment: Deployment, **wanted: str) -> list[Act]:
    """Return the acts, read in pages of two."""
    found, before = list[Act](), ""
    while page := await deployment.read(list_acts, before=before, limit=2, **wanted):
        found += [each.act for each in page]
        before = page[-1].id
    return found


async def test_acts_are_listed_newest_first_by_any_of_owner_board_and_key(deployment: Deployment) -> None:
    acts = [
        Act(at_us, "entry.set", key, owner, board, None, '{"set":{}}')
        for at_us, (key, owner, board) in enumerate(
            [("k1", "ada", "b"), ("k1", "bob", "b"), (None, "ada", "c"), ("k2", "ada", "b"), ("k1", None, None)]
        )
    ]
    await deployment.write(store_acts, acts)
    assert await list_all(deployment) == acts[::-1]
    assert await list_all(deployment, owner="ada") == [acts[3], acts[2], acts[0]]
    assert await list_all(deployment, owner="ada", board="b") == [acts[3], acts[0]]
    assert await list_all(deployment, owner="ada", board="b", key="k1") == [acts[0]]
    assert await list_all(deployment, board="none") == []


async def test_acts_of_one_time_are_all_listed_once(deployment: Deployment) -> None:
    await deployment.write(store_acts, [Act(7, "board.reset", board=f"b{number}") for number in range(9)])
    assert sorted(act.board or "" for act in await list_all(deployment)) == [f"b{number}" for number in range(9)]


async def test_an_owner_is_hidden_since_the_first_of_its_acts_until_it_is_shown(deployment: Deployment) -> None:
    for at_us, act in ((5, "owner.hidden"), (6, "owner.hidden"), (7, "owner.shown"), (8, "owner.hidden")):
        await deployment.write(record_act, HIDE._replace(at_us=at_us, act=act))  # type: ignore[arg-type]
        hidden = await deployment.read(list_hidden, after="", limit=9)
        assert [each.at_us for each in hidden] == {5: [5], 6: [5], 7: [], 8: [8]}[at_us]
    assert [act.at_us for act in await list_all(deployment)] == [8, 7, 5]


async def test_hidden_owners_are_listed_in_pages_by_name(deployment: Deployment) -> None:
    for owner in ("c", "a", "b"):
        await deployment.write(record_act, HIDE._replace(owner=owner))
    first = await deployment.read(list_hidden, after="", limit=2)
    assert [each.owner for each in first] == ["a", "b"]
    assert [each.owner for each in await deployment.read(list_hidden, after="b", limit=2)] == ["c"]


async def test_an_erased_owner_is_named_in_no_act_and_is_no_longer_listed_as_hidden(deployment: Deployment) -> None:
    await deployment.write(record_act, HIDE)
    await deployment.write(store_acts, [HIDE._replace(act="entry.set", reason="ada said", detail='{"post_id":"ada"}')])
    other = HIDE._replace(owner="bob")
    await deployment.write(record_act, other)
    await deployment.write(record_act, HIDE._replace(at_us=9, act="owner.erased"))
    assert await deployment.read(list_hidden, after="", limit=9) == [other]
    counts = [await deployment.write(forget_owner, "ada", rows_max=1) for _ in range(3)]
    assert counts == [1, 1, 0], "in bounded steps"
    erased = [act for act in await list_all(deployment) if act.owner is None]
    assert sorted((act.act, act.reason, act.detail) for act in erased if act.reason) == [
        ("owner.erased", "cheats", None),
        ("owner.hidden", "cheats", None),
    ]
    assert [(act.act, act.detail) for act in erased if not act.reason] == [("entry.set", None)]


async def test_changed_rows_are_counted_whatever_the_backend_is(deployment: Deployment) -> None:
    write = deployment.store.write
    assert await write(lambda: count_changed(store_profile("ada", "{}", now_us=1))) == (None, 1)
    assert await write(lambda: count_changed(remove_profile("ada"))) == (True, 1)
    assert await write(lambda: count_changed(remove_profile("ada"))) == (False, 0)
    assert await write(lambda: count_changed(list_acts(before="", limit=1))) == ([], 0)
    await write(partial(store_acts, [HIDE, HIDE]))
    assert await write(lambda: count_changed(forget_owner("ada", rows_max=9))) == (2, 2)
