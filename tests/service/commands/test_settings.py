"""Test that `rankcurve serve`, `config` and `keys` pass the right settings to the server and the store."""

import re
import sys
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


def store_with_key(folder: Path, name: str) -> str:
    """Make a store with one key, which has the name of the store. Return the store's address."""
    store = f"sqlite:///{folder}/{name}.db"
    run("keys", "create", name, "--role", "ops", "--store", store, code=0)
    return store


def test_keys_are_listed_and_revoked_without_their_text(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/x.db")
    made = run("keys", "create", "me", "--role", "reader", *store)
    assert re.fullmatch(r"rk_\w+\n", made.stdout)
    _, key_id, secret = made.stdout.strip().split("_")
    run("keys", "revoke", key_id, *store, code=0)
    text = run("keys", "list", *store).stdout
    assert len(re.findall(r"\d{4}-\d\d-\d\dT[\d:.]+Z", text)) == 2, "the times of creation and revocation"
    assert secret not in text
    unknown = run("keys", "revoke", "nope", *store)
    assert (unknown.exit_code, unknown.stderr) == (1, "error: no key 'nope'\n")
    run("keys", "create", "me", "--role", "king", *store, code=2)


def test_a_mistyped_store_is_not_created_by_a_look_at_its_keys(tmp_path: Path) -> None:
    missing = tmp_path / "typo.db"
    for words in (("list",), ("revoke", "nope")):
        refused = run("keys", *words, "--store", f"sqlite:///{missing}", code=1)
        assert "typo.db" in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_keys_commands_use_the_named_store_or_else_a_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    option, configured, environment = (store_with_key(tmp_path, name) for name in ("option", "config", "environment"))
    nowhere = ("--url", "http://127.0.0.1:1")
    away = run("keys", "list", *nowhere, code=1)
    assert "--store" in away.stderr
    assert away.stderr.count("\n") == 1
    config = tmp_path / "r.toml"
    config.write_text(f'store = "{configured}"\n')
    assert "config" in run("keys", "list", "--config", str(config), code=0).stdout
    monkeypatch.setenv("RANKCURVE_STORE", environment)
    assert "environment" in run("keys", "list", code=0).stdout
    assert "option" in run("keys", "list", "--store", option, code=0).stdout
    assert run("keys", "list", *nowhere).exit_code == 1, "the command line overrides the environment"


@pytest.mark.parametrize("command", ["create", "list", "revoke"])
def test_keys_commands_have_the_options_of_every_command_that_calls_a_service(command: str) -> None:
    shown = run("keys", command, "--help").stdout
    assert all(option in shown for option in ("--url", "--key", "--store", "RANKCURVE_KEY"))
