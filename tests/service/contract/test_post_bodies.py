"""Test that the service accepts or refuses a request with posts as a whole, and never ignores a part of the body."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.settings import RequestSettings
from service.contract.post_bodies import NDJSON_TYPE, PostTarget, parse_posts
from service.contract.problems import JSON_TYPE, ProblemError
from service.contract.requests import PostBody
from service.contract.strict_json import to_json_pointer

LIMITS = RequestSettings(posts_per_request_max=20, boards_per_post_max=3).model_copy(
    update={"parts_per_request_max": 25}
)


def parse(body: Any, *, media_type: str = JSON_TYPE, fan: bool = False, kind: PostTarget | None = None) -> Any:
    """Call `parse_posts` with a body. A body that is neither text nor bytes is first encoded as JSON."""
    if isinstance(body, str):
        body = body.encode()
    elif not isinstance(body, bytes):
        body = json.dumps(body).encode()
    target = kind or (PostTarget.BOARDS if fan else PostTarget.ONE_BOARD)
    return parse_posts(body, media_type, LIMITS, kind=target, may_set=True)


def refusal(body: bytes | str | Any, **how: Any) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        parse(body, **how)
    assert 400 <= caught.value.status < 500
    return caught.value


def check_accepted_or_refused(body: bytes | str, **how: Any) -> None:
    """Fail if parsing a body raises anything else than a problem that blames the caller."""
    status = 400
    try:
        parse(body, **how)
    except ProblemError as problem:
        status = problem.status
    assert 400 <= status < 500


def raw_stats(post: PostBody) -> dict[str, bytes]:
    """Return the stats of a post by name, each as the bytes from the body."""
    return {column: bytes(raw) for column, raw in post.stats.items()}


def test_the_parser_distinguishes_a_single_post_from_a_list() -> None:
    for body, is_single in (
        ('{"owner":"a","stats":{"xp":1}}', True),
        ('{"posts":[{"owner":"a","stats":{"xp":1}}]}', False),
        (' [{"owner":"a","stats":{"xp":1}}]', False),
    ):
        posts, single = parse(body)
        assert (len(posts), single) == (1, is_single)


def test_parsed_values_keep_the_bytes_of_the_body() -> None:
    posts, _ = parse('{"owner":"a","stats":{"xp": 1e2 ,"t":"60.250","tag":"a:b"}}')
    assert raw_stats(posts[0]) == {"xp": b"1e2", "t": b'"60.250"', "tag": b'"a:b"'}


def test_every_field_of_a_post_is_parsed() -> None:
    at = "1970-01-01T01:00:01+01:00"
    body = {"owner": "e\u0301", "stats": {"xp": 1}, "set": {"kills": 2}, "post_id": "m/1", "at": at}
    post = parse(body)[0][0]
    assert (post.owner, post.post_id, post.at_us) == ("é", "m/1", 1_000_000)
    assert bytes(post.set["kills"]) == b"2"


def test_an_absent_or_null_field_is_none() -> None:
    for body in ('{"owner":"a","stats":{"xp":1}}', '{"owner":"a","stats":{"xp":1},"post_id":null,"at":null}'):
        post = parse(body)[0][0]
        assert (post.post_id or None, post.at_us, post.set) == (None, None, {})


@pytest.mark.parametrize("media_type", ["application/json", NDJSON_TYPE])
def test_a_request_is_bounded_by_its_posts_times_their_boards(media_type: str) -> None:
    def body(posts: int) -> bytes:
        made = ['{"owner":"a","stats":{"xp":1},"boards":["x","y"]}'] * posts
        return ("\n".join(made) if media_type == NDJSON_TYPE else f'{{"posts":[{",".join(made)}]}}').encode()

    assert len(parse(body(12), media_type=media_type, fan=True)[0]) == 12
    problem = refusal(body(13), media_type=media_type, fan=True)
    assert (problem.code, problem.errors[0].pointer) == ("too_many_boards", "/posts")
    assert problem.detail.startswith("26 posts, counted once for each board")


REFUSED: dict[tuple[str, str | None], list[bytes]] = {  # bodies by the expected problem code and pointer
    ("bad_json", None): [
        b"", b"{", b"\xff\xfe", b'\xef\xbb\xbf{"owner":"x","stats":{"xp":1}}', b'{"owner":"x","stats":{"xp":"\xff"}}',
        b'[{"owner":"x","stats":{"xp":1}}],', b'{"owner":"x","stats":{"xp":NaN}}',
        b'{"owner":"x","stats":{"xp":01}}', b'{"owner":"x","stats":{"xp":1}} x',
        b'{"owner":"\\ud800","stats":{"xp":1}}', b'{"owner":"x","stats":{"xp":' + b"[" * 100_000,
    ],
    ("bad_request", ""): [b"null", b"7", b'"x"', b'{"stats":{"xp":1}}'],
    ("bad_request", "/posts"): [b'{"posts":[]}', b'{"posts":{}}', b"[]"],
    ("bad_request", "/posts/0"): [b'{"posts":[7]}', b"[7]", b"[" * 100_000],
    ("bad_request", "/stats"): [b'{"owner":"x","stats":[]}', b'{"owner":"x","stats":{}}', b'{"owner":"x"}'],
    ("bad_request", "/owner"): [
        b'{"owner":7,"stats":{"xp":1}}', b'{"owner":"","stats":{"xp":1}}', b'{"owner":"x\\u0000","stats":{"xp":1}}',
    ],
    ("bad_request", "/at"): [
        b'{"owner":"x","stats":{"xp":1},"at":"yesterday"}',
        b'{"owner":"x","stats":{"xp":1},"at":"2026-11-20T10:00:00"}',
    ],
    ("bad_request", "/post_id"): [b'{"owner":"x","stats":{"xp":1},"post_id":""}'],
    ("bad_request", "/set/xp"): [b'{"owner":"x","stats":{"xp":1},"set":{"xp":1}}'],
    ("bad_request", "/posts/1/owner"): [
        b'{"posts":[{"owner":"x","stats":{"xp":1}},{"owner":"","stats":{"xp":1}}]}',
        b'[{"owner":"x","stats":{"xp":1}},{"owner":"","stats":{"xp":1}}]',
        b'[{"owner":"x","stats":{"xp":1}},{"owner":7,"stats":{"xp":1}}]',
    ],
    ("unknown_field", "/boards"): [b'{"owner":"x","stats":{"xp":1},"boards":["b"]}'],
    ("unknown_field", "/zzz"): [b'{"owner":"x","stats":{"xp":1},"zzz":1}'],
    ("unknown_field", "/posts/0/zzz"): [
        b'{"posts":[{"owner":"x","stats":{"xp":1},"zzz":1}]}', b'[{"owner":"x","stats":{"xp":1},"zzz":1}]',
    ],
    ("duplicate_field", "/posts/0/stats/xp"): [
        b'{"posts":[{"owner":"x","stats":{"xp":1,"xp":2}}]}', b'[{"owner":"x","stats":{"xp":1,"xp":2}}]',
    ],
    ("duplicate_field", "/owner"): [
        b'{"owner":"x","owner":"y","stats":{"xp":1}}', b'{"owner" :"x","owner":"y","stats":{"xp":1}}',
    ],
    ("duplicate_field", "/stats/xp"): [
        b'{"owner":"x","stats":{"xp":1,"xp":2}}', b'{"owner":"x","stats":{"xp":1,"x\\u0070":2}}',
        b'{"owner":"x","stats":{"xp":' + b"9" * 5000 + b',"xp":1}}',
    ],
    ("duplicate_field", "/stats/xp/a"): [b'{"owner":"x","stats":{"xp":{"a":1,"a":2}}}'],
    ("duplicate_field", "/stats/a~1~0b"): [b'{"owner":"x","stats":{"a/~b":1,"a/~b":2}}'],
    ("duplicate_field", "/posts"): [b'{"posts":[],"posts":[{"owner":"x","stats":{"xp":1}}]}'],
    ("too_many_posts", "/posts"): [
        b'{"posts":[' + b",".join([b'{"owner":"x","stats":{"xp":1}}'] * 21) + b"]}",
        b"[" + b",".join([b'{"owner":"x","stats":{"xp":1}}'] * 21) + b"]",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "pointer", "body"), [(*refused, body) for refused, bodies in REFUSED.items() for body in bodies]
)
def test_a_body_that_breaks_the_contract_is_refused(code: str, pointer: str | None, body: bytes) -> None:
    problem = refusal(body)
    assert problem.code == code
    assert [error.pointer for error in problem.errors] == ([] if pointer is None else [pointer])


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (b"\n\n", "bad_request", "/posts"),
        (b'{"owner":"a","stats":{"xp":1}}\n\n{', "bad_json", None),
        (b'{"owner":"a","stats":{"xp":1}} {"owner":"a","stats":{"xp":1}}', "bad_json", None),
        (b'{"owner":"a",\n"stats":{"xp":1}}', "bad_json", None),
        (
            b'{"owner":"a","stats":{"xp":1}}\n \r\n{"owner":"b","stats":{"xp":1,"xp":2}}',
            "duplicate_field",
            "/posts/1/stats/xp",
        ),
        (b'{"owner":"a","stats":{"xp":1}}\n{"owner":7}', "bad_request", "/posts/1/owner"),
        (b'{"owner":"a","stats":{"xp":1}}\n' * 21, "too_many_posts", "/posts"),
        (b'{"posts":[]}', "unknown_field", "/posts/0/posts"),
        (b'{"owner":"a","stats":{"t":"\xff"}}', "bad_json", None),
    ],
)
def test_one_wrong_line_refuses_the_whole_request(body: bytes, code: str, pointer: str | None) -> None:
    problem = refusal(body, media_type=NDJSON_TYPE)
    assert problem.code == code
    assert [error.pointer for error in problem.errors] == ([] if pointer is None else [pointer])


@pytest.mark.parametrize(
    ("boards", "code"),
    [
        (["a", "b", "c", "d"], "too_many_boards"), (["a", "a"], "bad_request"), ([], "bad_request"),
        ("a", "bad_request"), (None, "bad_request"),
    ],
)  # fmt: skip
def test_the_boards_of_a_post_are_named_bounded_and_distinct(boards: Any, code: str) -> None:
    body = {"owner": "a", "stats": {"xp": 1}} | ({} if boards is None else {"boards": boards})
    assert refusal(body, fan=True).code == code


def test_colons_and_quotes_inside_strings_are_not_taken_for_keys() -> None:
    body = '{"owner":":a : \\": b","stats":{"t":" :x","a:b":1},"post_id":"\\":","at":"2026-11-20T10:00:00Z"}'
    assert parse(body)[0][0].owner == ':a : ": b'


class Members(list[tuple[str, Any]]):
    """The members of a JSON object, in order. A name may occur more than once."""


json_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.one_of(st.integers(), st.booleans(), st.none(), json_text, finite)
keys = st.sampled_from(["owner", "stats", "set", "post_id", "at", "boards", "posts", "xp", ":", '":', " :"])
values = st.recursive(
    st.one_of(scalars, st.sampled_from(["a", "2026-11-20T10:00:00Z", ":x", '":'])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.lists(st.tuples(keys, inner), max_size=4).map(Members)),
    max_leaves=12,
)


def to_json_text(value: Any, *, colon: str) -> str:
    """Encode a value as JSON. Encode `Members` as an object whose names may repeat."""
    if isinstance(value, Members):
        members = (json.dumps(key) + colon + to_json_text(member, colon=colon) for key, member in value)
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(to_json_text(member, colon=colon) for member in value) + "]"
    return json.dumps(value, ensure_ascii=colon == ":")


def has_duplicate_key(value: Any) -> bool:
    if isinstance(value, Members):
        names = [key for key, _ in value]
        return len(set(names)) < len(names) or any(has_duplicate_key(member) for _, member in value)
    return isinstance(value, list) and any(has_duplicate_key(member) for member in value)


stats = st.lists(st.tuples(st.sampled_from(["xp", "a:b", '":']), scalars), min_size=1, max_size=3).map(Members)
post = st.lists(
    st.one_of(
        st.tuples(st.just("owner"), st.sampled_from(["a", ":b", '":', " :", "é"])),
        st.tuples(st.just("stats"), stats),
        st.tuples(st.just("post_id"), st.sampled_from(["m", ":", '\\":'])),
        st.tuples(st.just("at"), st.just("2026-11-20T10:00:00Z")),
    ),
    max_size=5,
).map(Members)
batch = st.lists(post, min_size=1, max_size=3).map(lambda posts: Members([("posts", posts)]))
colons = st.sampled_from([":", ": ", " :", "\t:", "\n : ", "\r:"])


@settings(max_examples=300)
@given(st.one_of(post, batch, st.lists(post, min_size=1, max_size=3)), colons)
def test_a_body_is_refused_as_duplicate_only_if_an_object_has_a_key_twice(body: Any, colon: str) -> None:
    code = ""
    try:
        parse(to_json_text(body, colon=colon))
    except ProblemError as problem:
        code = problem.code
    assert code in ("duplicate_field" if has_duplicate_key(body) else "", "bad_request")


@settings(max_examples=300)
@given(values, colons, st.booleans(), st.sampled_from([JSON_TYPE, NDJSON_TYPE]))
def test_no_json_body_raises_another_error_than_a_problem(value: Any, colon: str, fan: bool, media_type: str) -> None:
    check_accepted_or_refused(to_json_text(value, colon=colon), fan=fan, media_type=media_type)


@settings(max_examples=300)
@given(st.data())
def test_no_damaged_body_raises_another_error_than_a_problem(data: st.DataObject) -> None:
    body = bytearray(b'{"posts":[{"owner":"\xc3\xa9","stats":{"xp":"1.5","k":-2e1},"at":"2026-11-20T10:00:00Z"}]}')
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(body) - 1))
        body[index : index + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not body:
            break
    check_accepted_or_refused(bytes(body))


def test_paths_of_the_decoder_become_json_pointers() -> None:
    assert to_json_pointer("$.posts[3].owner") == "/posts/3/owner"
    assert to_json_pointer("$.stats[...]") == "/stats/*"
    assert to_json_pointer("$") == ""


def test_a_post_to_a_family_names_each_facet_once() -> None:
    post = {"owner": "ada", "stats": {"xp": 1}, "facets": {"org": "1", "group": "g:7"}}
    [parsed], single = parse(post, kind=PostTarget.FAMILY)
    assert (parsed.facets, single) == ({"org": "1", "group": "g:7"}, True)
    [bare], _ = parse({"posts": [{"owner": "ada", "stats": {"xp": 1}}]}, kind=PostTarget.FAMILY)
    assert bare.facets == {}
    twice = b'{"owner": "ada", "stats": {"xp": 1}, "facets": {"org": "1", "org": "2"}}'
    assert refusal(twice, kind=PostTarget.FAMILY).code == "duplicate_field"
    assert refusal({**post, "boards": ["b"]}, kind=PostTarget.FAMILY).code == "unknown_field"
    assert refusal(post).code == "unknown_field"
