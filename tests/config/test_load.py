"""Why here: an operator's mistake must be told, never skipped; each test makes one and reads the answer.

The one rule: sources are given as arguments; no test reads the real environment.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import ConfigError, Settings, load
from config.masking import masked


def _toml(folder: Path, text: str) -> Path:
    path = folder / "rankcurve.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _problems(*args: object, **kwargs: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(*args, **kwargs)  # type: ignore[arg-type]  # forwards whatever the test gives
    return caught.value.problems


def test_without_any_source_every_setting_has_its_default() -> None:
    assert load({}, {}) == Settings()


def test_the_command_line_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    path = _toml(tmp_path, "port = 1\nslow_request_s = 2\nreader_connections = 3\n")
    environ = {"RANKCURVE_PORT": "4", "RANKCURVE_SLOW_REQUEST_S": "5"}
    settings = load({"port": 6}, environ, path)
    assert (settings.port, settings.slow_request_s, settings.reader_connections) == (6, 5.0, 3)
    assert settings.group_posts_max == Settings().group_posts_max


def test_an_override_of_none_was_not_given() -> None:
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
        ("RANKCURVE_PORT", ""),
        ("RANKCURVE_PORT", "8080.5"),
        ("RANKCURVE_PORT", "-1"),
        ("RANKCURVE_PORT", "9" * 5000),
        ("RANKCURVE_SLOW_REQUEST_S", "nan"),
        ("RANKCURVE_SLOW_REQUEST_S", "inf"),
        ("RANKCURVE_GROUPING", "maybe"),
        ("RANKCURVE_LOG_LEVEL", "INFO!"),
        ("RANKCURVE_HOST", ""),
        ("RANKCURVE_STORE", "mysql://localhost/x"),
        ("RANKCURVE_STORE", "sqlite:///"),
        ("RANKCURVE_STORE", "sqlite:///:memory:"),
        ("RANKCURVE_Port", "1"),
        ("RANKCURVE_", "1"),
    ],
)
def test_a_bad_variable_is_one_short_problem_that_names_it(variable: str, text: str) -> None:
    (problem,) = _problems({}, {variable: text})
    assert variable in problem
    assert len(problem) < 250


@pytest.mark.parametrize("value", [True, "8080 ", 8080.0, [8080], {}, 10**30])
def test_a_typed_value_is_never_bent_into_an_integer(value: object) -> None:
    if value == "8080 ":  # text comes from the environment or the command line and is parsed
        assert load({"port": value}, {}).port == 8080
    else:
        assert len(_problems({"port": value}, {})) == 1


def test_variables_of_clients_and_of_other_programs_are_left_alone() -> None:
    environ = {"RANKCURVE_URL": "http://127.0.0.1:1", "RANKCURVE_KEY": "rk_x", "PATH": "/bin", "rankcurve_port": "x"}
    assert load({}, environ) == Settings()


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe", b"port = 1\nport = 2"])
def test_a_file_that_is_not_toml_is_a_problem_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    (problem,) = _problems({}, {}, path)
    assert problem.startswith(f"{path}: cannot be read: ")


def test_a_missing_file_is_a_problem_and_hides_no_other(tmp_path: Path) -> None:
    problems = _problems({"port": -1}, {}, tmp_path / "absent.toml")
    assert len(problems) == 2


def test_limits_that_contradict_each_other_are_refused() -> None:
    (problem,) = _problems({"page_entries_max": 10, "write_backoff_base_s": 9.0}, {})
    assert "page_entries_default should not be greater than page_entries_max" in problem
    assert "write_backoff_base_s should not be greater than write_backoff_s_max" in problem


def test_a_password_in_a_refused_address_is_not_repeated() -> None:
    (problem,) = _problems({}, {"RANKCURVE_STORE": "mysql://me:se@cr/et@host/x"})
    assert "se@cr" not in problem
    assert "mysql://me:***@host/x" in problem


@given(
    st.text(), st.text(alphabet=st.characters(exclude_characters="@ \t\r\n", exclude_categories=["Z", "C"]), min_size=4)
)
def test_masking_never_lets_a_password_through(user: str, password: str) -> None:
    name = "".join(letter for letter in user if letter not in ":/@")
    assert f":{password}@" not in masked(f"postgresql://{name}:{password}@host/db") or password == "***"


@given(st.dictionaries(st.text(), st.text()))
def test_no_environment_raises_anything_but_a_config_error(variables: dict[str, str]) -> None:
    try:
        load({}, {f"RANKCURVE_{name}": text for name, text in variables.items()})
    except ConfigError as error:
        assert error.problems
