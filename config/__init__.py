"""Why here: the service's settings, typed and bounded, for every other package.

The one rule: nothing else in the project reads a configuration file or a RANKCURVE_ variable of a setting.
"""

from config.describe import SettingRow, default_toml, describe, settings_table_markdown
from config.errors import ConfigError
from config.load import load
from config.settings import Settings

__all__ = ["ConfigError", "SettingRow", "Settings", "default_toml", "describe", "load", "settings_table_markdown"]
