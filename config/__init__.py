"""Loads and checks the settings of the service, for the packages that need them.

    settings = load(overrides, environ, toml_path)   # raises ConfigError, which lists every problem
    Writer(…, settings)                              # each part of the service receives the whole object

Each setting is declared once, in `settings`: its default, bounds, unit and description. The checks in `load` and the
tables in `describe` are made from these declarations.

No other package reads a configuration file, or an environment variable that is a setting (`RANKCURVE_…`). Code that
shows the value of a setting first masks it with `config.masking.masked`. This package imports no other package of the
project. Begin with `settings`.
"""

from config.describe import SettingRow, describe
from config.load import ConfigError, load
from config.settings import Settings
