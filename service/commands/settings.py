"""Reads the settings for some commands: from the command line, the environment, a TOML file and defaults.

If two sources set the same setting, the source named first above decides.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from config import ConfigError, Settings, load
from config.masking import masked

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", dir_okay=False, help="TOML file with settings. Default: the file that RANKCURVE_CONFIG names."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting of `rankcurve config`; repeatable."),
]
StoreOption = Annotated[
    str | None, typer.Option(help="Address of the store, like sqlite:///data/rankcurve.db.", show_default=False)
]


def read_settings(named: Mapping[str, object], assignments: list[str] | None, toml_path: Path | None) -> Settings:
    """Return the effective settings. If any setting is invalid, list all invalid settings and exit with code 2.

    `named` has the options with a name of their own. An option that was not given is None and is not passed on.
    Otherwise `rankcurve config` would name the command line as its source. `assignments` has the texts of --set.
    """
    overrides: dict[str, object] = {}
    for text in assignments or []:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"--set {masked(text)}: write NAME=VALUE")
        overrides[name] = value
    overrides |= {name: value for name, value in named.items() if value is not None}
    try:
        return load(overrides, os.environ, toml_path)
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(2) from None
