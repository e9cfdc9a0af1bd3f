"""Test that mistakes of operators are reported and never skipped, also in the lists of peers and connection pools.

Each test makes one mistake. All settings come from arguments; no test reads the real environment.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import ConfigError, Settings, load
from config.describe import describe
from config.kinds import parse_peers
from config.masking import masked


def _toml(folder: Path, text: str) -> Path:
    path = folder / "rankcurve.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _problems(*args: object, **kwargs: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(*args, **kwargs)  # type: ignore[arg-type]  # forwards whatever the test gives
    return caught.value.problems


def test_the_command_line_beats_the_environment_the_file_and_the_default_in_order(tmp_path: Path) -> None:
    path = _toml(tmp_path, "port = 1\nslow_request_s = 2\nreader_connections = 3\n")
    environ = {"RANKCURVE_PORT": "4", "RANKCURVE_SLOW_REQUEST_S": "5"}
    settings = load({"port": 6}, environ, path)
    assert (settings.port, settings.slow_request_s, settings.reader_connections) == (6, 5.0, 3)
    assert settings.group_posts_max == Settings().group_posts_max


def test_an_override_of_none_counts_as_not_given() -> None:
    assert load({"port": None}, {"RANKCURVE_PORT": "4"}).port == 4


def test_the_environment_may_name_the_file_and_an_argument_wins_over_it(tmp_path: Path) -> None:
    path = _toml(tmp_path, "port = 7")
    assert load({}, {"RANKCURVE_CONFIG": str(path)}).port == 7
    other = tmp_path / "other.toml"
    other.write_text("port = 8")
    assert load({}, {"RANKCURVE_CONFIG": str(path)}, other).port == 8


def test_all_bad_keys_and_values_of_all_sources_are_reported_at_once(tmp_path: Path) -> None:
    path = _toml(tmp_path, 'prot = 1\nport = "8080"\n[server]\nhost = "x"\n')
    problems = _problems({"nonsense": 1, "jobs": "some"}, {"RANKCURVE_PORT": "70000", "RANKCURVE_HOTS": "x"}, path)
    told = "\n".join(problems)
    assert len(problems) == 7
    assert f"{path}: prot is not a setting; did you mean port?" in told
    assert f"{path}: server is not a setting" in told
    assert f"{path}: port is '8080'; should be a valid integer" in told
    assert "RANKCURVE_PORT: port is '70000'; should be less than or equal to 65535" in told
    assert "environment: RANKCURVE_HOTS is not a setting; did you mean RANKCURVE_HOST?" in told
    assert "command line: nonsense is not a setting" in told
    assert "command line: jobs is 'some'; should be 'embedded' or 'none'" in told


def test_a_bad_value_is_reported_even_where_a_stronger_source_overrides_it(tmp_path: Path) -> None:
    assert len(_problems({"port": 1}, {"RANKCURVE_PORT": "x"}, _toml(tmp_path, "port = 1.5"))) == 2


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("RANKCURVE_PORT", ""), ("RANKCURVE_PORT", "8080.5"), ("RANKCURVE_PORT", "-1"), ("RANKCURVE_PORT", "9" * 5000),
        ("RANKCURVE_SLOW_REQUEST_S", "nan"), ("RANKCURVE_SLOW_REQUEST_S", "inf"), ("RANKCURVE_CREATE_STORE", "maybe"),
        ("RANKCURVE_LOG_LEVEL", "INFO!"), ("RANKCURVE_HOST", ""), ("RANKCURVE_STORE", "mysql://localhost/x"),
        ("RANKCURVE_STORE", "sqlite:///"), ("RANKCURVE_STORE", "sqlite:///:memory:"), ("RANKCURVE_Port", "1"),
        ("RANKCURVE_", "1"),
    ],
)  # fmt: skip
def test_a_bad_variable_is_one_short_problem_that_names_it(variable: str, text: str) -> None:
    (problem,) = _problems({}, {variable: text})
    assert variable in problem
    assert len(problem) < 250


@pytest.mark.parametrize("value", [True, 8080.0, [8080], {}, 10**30])
def test_only_text_is_converted_to_an_integer(value: object) -> None:
    assert load({"port": "8080 "}, {}).port == 8080
    assert len(_problems({"port": value}, {})) == 1


def test_variables_of_clients_and_of_other_programs_are_left_alone() -> None:
    environ = {"RANKCURVE_URL": "http://127.0.0.1:1", "RANKCURVE_KEY": "rk_x", "PATH": "/bin", "rankcurve_port": "x"}
    assert load({}, environ) == Settings()


def test_variables_that_kubernetes_sets_for_a_service_are_ignored() -> None:
    of_services = {
        "RANKCURVE_SERVICE_HOST": "10.0.0.1", "RANKCURVE_SERVICE_PORT": "8080", "RANKCURVE_SERVICE_PORT_HTTP": "8080",
        "RANKCURVE_PORT": "tcp://10.0.0.1:8080", "RANKCURVE_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "RANKCURVE_PORT_8080_TCP_PROTO": "tcp", "RANKCURVE_PORT_8080_TCP_PORT": "8080",
        "RANKCURVE_PORT_8080_TCP_ADDR": "10.0.0.1", "RANKCURVE_JOBS_PORT": "tcp://10.0.0.2:9090",
        "RANKCURVE_JOBS_SERVICE_HOST": "10.0.0.2", "RANKCURVE_JOBS_PORT_9090_UDP": "udp://10.0.0.2:9090",
    }  # fmt: skip
    settings = load({}, {**of_services, "RANKCURVE_HOST": "10.0.0.3"})
    assert (settings.host, settings.port, settings.jobs_port) == ("10.0.0.3", Settings().port, Settings().jobs_port)
    assert load({}, {"RANKCURVE_JOBS_PORT": "9090"}).jobs_port == 9090


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("RANKCURVE_PORT", "http://10.0.0.1:80"), ("RANKCURVE_SERVICE_HOSTS", "10.0.0.1"),
        ("RANKCURVE_SERVICE_PORT", "many"), ("RANKCURVE_PORT_TCP", "tcp://10.0.0.1:80"),
        ("RANKCURVE_STORE", "tcp://10.0.0.1:80"),
    ],
)  # fmt: skip
def test_variables_that_kubernetes_does_not_set_are_still_refused(variable: str, text: str) -> None:
    assert len(_problems({}, {variable: text})) == 1


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe", b"port = 1\nport = 2"])
def test_a_file_that_is_not_toml_is_a_problem_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    (problem,) = _problems({}, {}, path)
    assert problem.startswith(f"{path}: cannot be read: ")


def test_a_missing_file_is_a_problem_and_hides_no_other(tmp_path: Path) -> None:
    assert len(_problems({"port": -1}, {}, tmp_path / "absent.toml")) == 2


def test_a_page_without_a_limit_has_100_entries_or_as_many_as_a_page_may_have() -> None:
    assert [load({"page_entries_max": most}, {}).page_entries_default for most in (10, 1_000)] == [10, 100]


def test_a_password_in_a_refused_address_is_not_repeated() -> None:
    (problem,) = _problems({}, {"RANKCURVE_STORE": "mysql://me:se@cr/et@host/x"})
    assert "se@cr" not in problem
    assert "mysql://me:***@host/x" in problem


SECRET = "s3cr3t"
# Addresses that contain a password. Parsers accept some of these addresses. Other addresses have typing mistakes.
SECRET_TEXTS = (
    *(
        f"postgresql://{rest}"
        for rest in (
            f"me:{SECRET}@db1/rank", f"me:{SECRET}@db1:5432,db2:5433/rank", f"me:{SECRET}@[::1]:5432/rank",
            f"me:a/{SECRET}@db1/rank", f"me:a#{SECRET}@db1/rank", f"me:a?{SECRET}@db1/rank", f"me:a@{SECRET}@db1/rank",
            f"me:a b {SECRET}@db1/rank", f"me:a\n{SECRET}@db1/rank", f"us/er:{SECRET}@db1/rank", f"me:{SECRET}",
            f"me:{SECRET}/rank", f"me:1/{SECRET}@db1", f"me:%40{SECRET}%2F@db1/rank", f"db1/rank?password={SECRET}",
            f"db1:5432/rank?user=me&password={SECRET}&sslmode=require", f"db1:5432/rank?password=a@{SECRET}",
            f"db1/rank?password=a b {SECRET}", f"db1/rank?p%61ssword={SECRET}", f"db1/rank?PASSWORD={SECRET}",
            f"db1/rank?passfile=/{SECRET}", f"db1/rank?sslmode=require&sslpassword={SECRET}",
        )
    ),
    f"host=db1 user=me password={SECRET} dbname=rank", f"host=db1 password = '{SECRET} {SECRET}' dbname=rank",
    f"host=db1 password='it\\'s {SECRET}' dbname=rank", f"host=db1 password='{SECRET} and no end",
    f"store=postgresql://db1/rank?password={SECRET}", f"us=https://:{SECRET}@us:8080,eu=https://:{SECRET}@eu:8080",
    f"http://{SECRET}@collector:4318/v1/traces", f"http://collector:4318/v1/traces?token={SECRET}",
    f"me:{SECRET}@cache:11211", f"PGPASSWORD={SECRET}", f"PGHOST=db1 PGPASSWORD='{SECRET} {SECRET}'",
    f"export RANKCURVE_KEY={SECRET}", f"postgresql://db1/rank?PGPASSFILE={SECRET}",
)  # fmt: skip


@pytest.mark.parametrize("text", SECRET_TEXTS)
def test_every_form_of_a_secret_is_masked(text: str) -> None:
    assert SECRET not in masked(text)
    assert masked(masked(text)) == masked(text)


@pytest.mark.parametrize("text", SECRET_TEXTS)
@pytest.mark.parametrize("name", ["store", "memcached_servers", "lease_peers", "tracing_url"])
def test_no_problem_and_no_description_of_a_setting_shows_a_secret(tmp_path: Path, name: str, text: str) -> None:
    sources: list[tuple[dict[str, object], dict[str, str], Path | None]] = [
        ({name: text}, {}, None),
        ({}, {f"RANKCURVE_{name.upper()}": text}, None),
        ({text: "1"}, {}, None),
        ({}, {}, _toml(tmp_path, f"{name} = [{json.dumps(text)}]")),
    ]
    for overrides, environ, path in sources:
        try:
            told = repr(describe(load(overrides, environ, path)))
        except ConfigError as error:
            told = str(error.problems)
        assert SECRET not in told


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////var/lib/rankcurve/rankcurve.db", "postgresql://me@db1,db2:5433/rank?sslmode=require",
        "postgresql://[::1]:5432/rank", "cache1:11211,[::1]:11211", "http://[::1]:4318/v1/traces",
        "us=https://us:8080", "season=season-*:2",
    ],
)  # fmt: skip
def test_text_without_a_secret_is_shown_as_it_is(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    "rest",
    [
        "me:a/b@db1/rank", "me:a#b@db1/rank", "me:a?b@db1/rank", "me:a@b@db1/rank", "me:a[b@db1/rank", "me:secret",
        "me:x@db1:99999999/rank", "me:x@db1:1,db2:abc/rank", "db1/rank#x", "db1/rank?nothing",
    ],
)  # fmt: skip
def test_an_address_that_no_driver_can_read_is_refused_with_the_way_to_write_it(rest: str) -> None:
    (problem,) = _problems({"store": f"postgresql://{rest}"}, {})
    assert "percent-encoded" in problem


@pytest.mark.parametrize(
    "rest",
    [
        "", "/rank", "me@/rank?host=/run/postgresql", "me:p%40ss:w!rd@db1:5432,db2,[::1]:5433/rank",
        "%2Frun%2Fpostgresql/rank", "db1/rank?user=me@server&sslmode=verify-full",
    ],
)  # fmt: skip
def test_an_address_that_a_driver_can_read_is_accepted(rest: str) -> None:
    assert load({"store": f"postgresql://{rest}"}, {}).store == f"postgresql://{rest}"


@given(
    st.text(), st.text(alphabet=st.characters(exclude_characters="@ \t\r\n", exclude_categories=["Z", "C"]), min_size=4)
)
def test_masking_never_lets_a_password_through(user: str, password: str) -> None:
    name = "".join(letter for letter in user if letter not in ":/@")
    assert f":{password}@" not in masked(f"postgresql://{name}:{password}@host/db") or password == "***"


@given(st.dictionaries(st.text(), st.text()))
def test_no_environment_raises_anything_but_a_config_error(variables: dict[str, str]) -> None:
    problems: tuple[str, ...] | None = None
    try:
        load({}, {f"RANKCURVE_{name}": text for name, text in variables.items()})
    except ConfigError as error:
        problems = error.problems
    assert problems != (), "an error says what is wrong"


def test_peers_are_read_with_their_keys_and_shown_without_them() -> None:
    text = "us=https://:rk_1_2@us.example:8080/, asia=http://10.0.0.3:8080"
    assert parse_peers(text) == {"us": "https://:rk_1_2@us.example:8080", "asia": "http://10.0.0.3:8080"}
    assert parse_peers("") == {}
    [shown] = [row.value for row in describe(load({"lease_peers": text}, {})) if row.name == "lease_peers"]
    assert "rk_1_2" not in shown


PEERS = ["us", "us=us.example", "us=ftp://x", "=http://x", "US=http://x", "us=http://x,us=http://y", "us=http://"]


@pytest.mark.parametrize("text", PEERS)
def test_text_that_is_no_peer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="should"):
        parse_peers(text)


def test_secrets_of_player_tokens_are_read_and_never_shown(tmp_path: Path) -> None:
    secrets = ["a" * 32, "b" * 40]
    path = tmp_path / "rankcurve.toml"
    path.write_text(f'player_token_keys = ["{secrets[0]}", "{secrets[1]}"]', encoding="utf-8")
    for settings in load({}, {}, path), load({}, {"RANKCURVE_PLAYER_TOKEN_KEYS": ",".join(secrets)}):
        assert [each.get_secret_value() for each in settings.player_token_keys] == secrets
        assert not any(each in str(describe(settings)) + repr(settings) for each in secrets)
        sent = json.loads(json.dumps(settings.model_dump()))
        assert Settings(**sent).player_token_keys == settings.player_token_keys, "for processes of the service"
    with pytest.raises(ConfigError, match="at least 32 characters") as error:
        load({}, {"RANKCURVE_PLAYER_TOKEN_KEYS": "too-short"})
    assert "too-short" not in str(error.value)
