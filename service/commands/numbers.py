"""Commands that take an owner: an owner that reads like a negative number is an argument, not an option.

Only a negative number is let through. Any other unknown option is refused, as in every command.
"""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

NEGATIVE_NUMBER = re.compile(r"-[0-9]+(\.[0-9]+)?")


class NumbersAreArguments(TyperCommand):
    """A command that has no options such as `-5`, so that `-5` can only be an argument."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line, with negative numbers as arguments."""
        # Only if there is such a number: typer would take any unknown option for an argument, and refuse it as one too
        # many.
        ctx.ignore_unknown_options = any(map(NEGATIVE_NUMBER.fullmatch, args))
        return super().parse_args(ctx, args)
