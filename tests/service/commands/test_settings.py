"""Test that `rankcurve serve`, `config` and `keys` pass the right settings to the server and the store."""

import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from config import Settings
from storage.errors import StoreLockedError
from tests.service.cli_fake_service import run


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    runs: list[Settings] = []
    module = ModuleType("service.serve")

    def record(settings: Settings, *, only_jobs: bool = False) -> None:
        runs.append(settings)

    module.serve_until_stopped = record  # type: ignore[attr-defined]  # a module made for this test
    monkeypatch.setitem(sys.modules, "service.serve", module)
    return runs


def test_options_of_serve_override_the_environment_and_other_settings_stay(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANKCURVE_PORT", "9000")
    monkeypatch.setenv("RANKCURVE_LOG_LEVEL", "warning")
    (tmp_path / "r.toml").write_text("port = 9002\nhost = '127.0.0.2'\n")
    config = ("--config", str(tmp_path / "r.toml"))
    run("serve", "--port", "9001", "--jobs", "none", "--workers", "0", "--set", "queue_posts_max=7", *config, code=0)
    settings = served[0]
    assert (settings.port, settings.jobs, settings.queue_posts_max) == (9001, "none", 7)
    assert (settings.host, settings.log_level) == ("127.0.0.2", "warning")


@pytest.mark.parametrize("command", ["serve", "jobs"])
def test_every_kind_of_process_has_an_option_for_memcached_servers(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("RANKCURVE_MEMCACHED_SERVERS", "127.0.0.1:1")
    arguments = (command, "--store", "postgresql://h/d", "--memcached")
    run(*arguments, "10.0.0.1:11211,10.0.0.2:11211", code=0)
    assert served[0].memcached_servers == ("10.0.0.1:11211", "10.0.0.2:11211")
    refused = run(*arguments, "10.0.0.1")
    assert (refused.exit_code, len(served)) == (2, 1)
    assert "memcached_servers" in refused.stderr
    assert "HOST:PORT" in refused.stderr


def test_all_bad_settings_are_listed_at_once(served: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKCURVE_PORT", "many")
    result = run("serve", "--set", "nope=1", "--set", "queue_posts_max=0")
    assert (result.exit_code, served) == (2, [])
    assert all(word in result.stderr for word in ("RANKCURVE_PORT", "nope", "queue_posts_max"))
    run("serve", "--set", "queue_posts_max", code=2)


@pytest.mark.parametrize("error", [StoreLockedError(), OSError(98, "Address already in use")])
def test_a_server_that_cannot_start_says_why_on_one_line(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(_: Settings) -> None:
        raise error

    monkeypatch.setattr(sys.modules["service.serve"], "serve_until_stopped", refuse)
    result = run("serve", "--workers", "0")
    assert (result.exit_code, result.stderr[:7], result.stderr.count("\n")) == (1, "error: ", 1)


def test_config_shows_each_setting_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKCURVE_PORT", "9000")
    text = run("config", "--set", "host=::1").stdout
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "RANKCURVE_PORT" in text
    assert "9000" in lines["port"]
    assert "::1" in lines["host"]
    assert set(Settings.model_fields) <= {name.strip("…") for name in lines}


def keys_in(store: Path) -> list[str]:
    """Return the names of the keys in the SQLite store of a file."""
    with closing(sqlite3.connect(store)) as opened:
        return [name for (name,) in opened.execute("SELECT name FROM api_keys")]


def test_a_key_is_printed_once_and_its_role_is_checked(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/x.db")
    made = run("keys", "create", "me", "--role", "reader", *store)
    assert re.fullmatch(r"rk_\w+\n", made.stdout)
    run("keys", "create", "me", "--role", "king", *store, code=2)
    assert keys_in(tmp_path / "x.db") == ["me"]
    with closing(sqlite3.connect(tmp_path / "x.db")) as opened:
        assert opened.execute("SELECT act, key FROM acts").fetchall() == [("key.created", None)]


def test_a_key_is_created_in_the_named_store_or_else_by_a_service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    option, configured, environment = (tmp_path / f"{name}.db" for name in ("option", "config", "environment"))
    create, nowhere = ("keys", "create", "me", "--role", "ops"), ("--url", "http://127.0.0.1:1")
    away = run(*create, *nowhere, code=1)
    assert "rankcurve serve" in away.stderr
    config = tmp_path / "r.toml"
    config.write_text(f'store = "sqlite:///{configured}"\n')
    monkeypatch.setenv("RANKCURVE_STORE", f"sqlite:///{environment}")
    run(*create, *nowhere, code=1)  # the command line overrides the environment
    assert not environment.exists()
    run(*create, code=0)
    run(*create, "--store", f"sqlite:///{option}", code=0)
    monkeypatch.delenv("RANKCURVE_STORE")
    run(*create, "--config", str(config), code=0)
    assert [keys_in(store) for store in (option, configured, environment)] == [["me"]] * 3


@pytest.mark.parametrize("command", ["create", "list", "revoke"])
def test_keys_commands_have_the_options_of_every_command_that_calls_a_service(command: str) -> None:
    shown = run("keys", command, "--help").stdout
    assert all(option in shown for option in ("--url", "--key", "RANKCURVE_KEY"))
    assert ("--store" in shown) == (command == "create")
