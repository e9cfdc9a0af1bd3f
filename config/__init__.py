"""The settings of the service, typed and bounded, for every other package.

    settings = load(overrides, environ, toml_path)   # raises ConfigError, which lists every problem
    limits = limits_of(SomeLimits, settings)         # a dataclass; its fields are names of settings

Each setting is declared once, in `settings`: its default, bounds, unit and description. Everything else is made from
those declarations: the checks in `load`, and the tables of `describe` for the command line and the documentation.

Nothing else in the project reads a configuration file, or an environment variable that is a setting (`RANKCURVE_…`). A
value is passed through `config.masking.masked` before it is shown to anybody.

This package imports no other package of the project. Begin with `settings`.
"""

from config.describe import SettingRow, default_toml, describe, settings_table_markdown
from config.errors import ConfigError
from config.load import load
from config.settings import Settings, limits_of

__all__ = [
    "ConfigError",
    "SettingRow",
    "Settings",
    "default_toml",
    "describe",
    "limits_of",
    "load",
    "settings_table_markdown",
]
