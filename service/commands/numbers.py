"""Lets commands take an owner whose name is a negative number, such as `-5`, as an argument."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

NEGATIVE_NUMBER = re.compile(r"-[0-9]+(\.[0-9]+)?")


class NumbersAreArguments(TyperCommand):
    """A command that has no options such as `-5`, so that `-5` can only be an argument."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Set this only if an argument is a negative number. Otherwise typer would take every unknown option for an
        # argument, and complain about one argument too many.
        ctx.ignore_unknown_options = any(map(NEGATIVE_NUMBER.fullmatch, args))
        return super().parse_args(ctx, args)
