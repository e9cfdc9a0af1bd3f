"""`rankcurve config`: the effective settings, and where each comes from. The package `config` masks the secrets."""

from __future__ import annotations

from typing import Annotated

import typer

from config import describe, settings_table_markdown
from service.commands.settings import ConfigOption, SetOption, read_settings
from service.commands.tables import show_table

MarkdownOption = Annotated[
    bool, typer.Option("--markdown", help="Print all settings as the table of docs/settings.md.")
]


def show_config(
    markdown: MarkdownOption = False,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Print the effective settings with units, bounds and sources. Secrets are masked.

    Order of precedence: command line, environment (RANKCURVE_PORT=…), TOML file, default.
    """
    if markdown:
        typer.echo(settings_table_markdown(), nl=False)
        return
    rows = describe(read_settings({}, assignments, config))
    show_table(("setting", "value", "unit", "bounds", "description", "source"), rows)
