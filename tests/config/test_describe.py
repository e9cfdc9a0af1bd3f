"""Test how settings are described, and that default.toml has all of them at their defaults."""

import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from config import Settings, describe, load

ROOT = Path(__file__).parents[2]
UNITS_BY_SUFFIX = {
    "_reads_per_s": "reads/s", "_rows_per_s": "rows/s", "_posts_per_s": "posts/s", "_requests_per_s": "requests/s",
    "_s": "s", "_s_max": "s",
    "_seconds": "s", "_mib": "MiB", "_bytes_max": "bytes", "_ratio": "ratio",
}  # fmt: skip


def test_the_default_file_holds_every_setting_at_its_default() -> None:
    path = ROOT / "config" / "default.toml"
    assert set(tomllib.loads(path.read_text(encoding="utf-8"))) == set(Settings.model_fields)
    assert load({}, {}, path).model_dump() == Settings().model_dump()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_setting_has_bounds_and_a_description_and_its_name_agrees_with_its_unit(name: str) -> None:
    row = next(row for row in describe(Settings()) if row.name == name)
    assert row.description
    assert "|" not in row.description
    if isinstance(getattr(Settings(), name), str | tuple):
        return
    assert row.bounds
    expected = next((unit for suffix, unit in UNITS_BY_SUFFIX.items() if name.endswith(suffix)), None)
    assert expected is None or row.unit == expected
    assert row.unit not in UNITS_BY_SUFFIX.values() or expected == row.unit


def test_a_description_tells_where_a_value_came_from(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("reader_connections = 3")
    rows = {row.name: row for row in describe(load({"port": 1}, {"RANKCURVE_JOBS": "none"}, path))}
    assert (rows["port"].value, rows["port"].source) == ("1", "command line")
    assert (rows["jobs"].value, rows["jobs"].source) == ("none", "RANKCURVE_JOBS")
    assert (rows["reader_connections"].value, rows["reader_connections"].source) == ("3", str(path))
    assert rows["host"].source == "default"


def test_a_described_store_never_shows_a_password() -> None:
    settings = Settings.model_construct(store="postgresql://me:secret@db/rank")
    assert next(row.value for row in describe(settings) if row.name == "store") == "postgresql://me:***@db/rank"


def test_settings_cannot_be_changed_after_loading() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1
