"""Test that `rankcurve serve`, `config` and `keys` pass the right settings to the server and the store."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from config import Settings
from service.commands.operating import keys as keys_module
from storage.errors import StoreLockedError, UnknownKeyError
from tests.service.cli_fake_service import run


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    runs: list[Settings] = []
    module = ModuleType("service.serve")
    module.serve_until_stopped = runs.append  # type: ignore[attr-defined]  # a module made for this test
    module.run_jobs_until_stopped = runs.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "service.serve", module)
    return runs


def test_options_of_serve_override_the_environment_and_other_settings_stay(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANKCURVE_PORT", "9000")
    monkeypatch.setenv("RANKCURVE_LOG_LEVEL", "warning")
    (tmp_path / "r.toml").write_text("port = 9002\nhost = '127.0.0.2'\n")
    config = ("--config", str(tmp_path / "r.toml"))
    run("serve", "--port", "9001", "--jobs", "none", "--set", "queue_posts_max=7", *config, code=0)
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


def test_backup_and_restore_take_settings_like_serve(tmp_path: Path) -> None:
    store = tmp_path / "kept.db"
    run("keys", "create", "me", "--role", "ops", "--store", f"sqlite:///{store}", code=0)
    config = tmp_path / "r.toml"
    config.write_text(f'store = "sqlite:///{store}"\n')
    copy, other = tmp_path / "copy.db", tmp_path / "other.db"
    run("backup", str(copy), "--config", str(config), code=0)
    run("backup", str(tmp_path / "copy2.db"), "--set", f"store=sqlite:///{store}", code=0)
    done = run("restore", str(copy), "--config", str(config), "--set", f"store=sqlite:///{other}")
    assert (done.exit_code, other.exists()) == (0, True), done.output
    run("backup", str(tmp_path / "copy3.db"), "--set", "nope=1", code=2)


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
    result = run("serve")
    assert (result.exit_code, result.stderr[:7], result.stderr.count("\n")) == (1, "error: ", 1)


def test_config_shows_each_setting_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKCURVE_PORT", "9000")
    text = run("config", "--set", "host=::1").stdout
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "RANKCURVE_PORT" in text
    assert "9000" in lines["port"]
    assert "::1" in lines["host"]
    assert set(Settings.model_fields) <= {name.strip("…") for name in lines}
    table = run("config", "--markdown").stdout
    assert all(f"`{name}`" in table for name in Settings.model_fields)


@dataclass
class Key:
    id: str
    name: str
    role: str
    created_at_us: int = 1_795_168_800_000_000
    revoked_at_us: int | None = None


class Keys:
    """A replacement for the store of API keys. It keeps the keys in memory."""

    def __init__(self) -> None:
        self.held: list[Key] = []
        self.locked = False
        self.settings: Settings | None = None

    async def list_keys(self) -> list[Key]:
        return self.held

    async def create(self, name: str, role: str) -> tuple[Key, str]:
        self.held.append(Key(f"k{len(self.held)}", name, role))
        return self.held[-1], f"rk_k{len(self.held) - 1}_secret"

    async def revoke(self, id: str) -> None:
        found = [key for key in self.held if key.id == id]
        if not found:
            raise UnknownKeyError(f"no key {id!r}")
        found[0].revoked_at_us = 1_795_168_860_000_000


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    store = Keys()

    @asynccontextmanager
    async def opened(settings: Settings) -> AsyncIterator[Keys]:
        store.settings = settings
        if store.locked:
            raise StoreLockedError("a service owns this store")
        yield store

    monkeypatch.setattr(keys_module, "open_store_keys", opened)
    return store


STORE = ("--store", "sqlite:///x.db")


def stores_of(keys: Keys) -> list[str]:
    """Return a list with the store that was opened last, or an empty list if no store was opened."""
    return [keys.settings.store] if keys.settings is not None else []


def test_a_new_key_is_the_only_thing_on_standard_output(keys: Keys) -> None:
    result = run("keys", "create", "me", "--role", "ops", *STORE)
    assert (result.exit_code, result.stdout) == (0, "rk_k0_secret\n")
    assert stores_of(keys) == ["sqlite:///x.db"]
    assert (keys.held[0].name, keys.held[0].role) == ("me", "ops")


def test_keys_are_listed_and_revoked_without_their_text(keys: Keys) -> None:
    run("keys", "create", "me", "--role", "reader", *STORE)
    run("keys", "revoke", "k0", *STORE, code=0)
    text = run("keys", "list", *STORE).stdout
    assert "2026-11-20 10:00:00Z  2026-11-20 10:01:00Z" in text
    assert "secret" not in text


def test_an_unknown_key_and_a_store_in_use_are_reported_in_one_line(keys: Keys) -> None:
    result = run("keys", "revoke", "nope", *STORE)
    assert (result.exit_code, result.stderr) == (1, "error: no key 'nope'\n")
    keys.locked = True
    result = run("keys", "list", *STORE)
    told = "error: a service runs on this store; name the service with --url and --key: a service owns this store\n"
    assert (result.exit_code, result.stderr) == (1, told)


def test_keys_commands_use_the_named_store_or_else_a_service(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = ("--url", "http://127.0.0.1:1")
    away = run("keys", "list", *nowhere, code=1)
    assert "--store" in away.stderr
    assert away.stderr.count("\n") == 1
    assert stores_of(keys) == []
    config = tmp_path / "r.toml"
    config.write_text('store = "sqlite:///y.db"\n')
    run("keys", "list", "--config", str(config), code=0)
    assert stores_of(keys) == ["sqlite:///y.db"]
    run("keys", "list", *nowhere, *STORE, code=2)
    monkeypatch.setenv("RANKCURVE_STORE", "sqlite:///z.db")
    run("keys", "list", code=0)
    assert stores_of(keys) == ["sqlite:///z.db"]
    assert run("keys", "list", *nowhere).exit_code == 1, "the command line overrides the environment"


@pytest.mark.parametrize("command", ["create", "list", "revoke"])
def test_keys_commands_have_the_options_of_every_command_that_calls_a_service(command: str) -> None:
    shown = run("keys", command, "--help").stdout
    assert all(option in shown for option in ("--url", "--key", "--store", "RANKCURVE_KEY"))


def test_an_unknown_role_exits_with_2(keys: Keys) -> None:
    run("keys", "create", "me", "--role", "king", *STORE, code=2)
