"""Commands that take an owner: one that reads like a negative number is an argument, not an option.

The rule: only a negative number is let through; any other unknown option is refused as everywhere.
"""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

NEGATIVE_NUMBER = re.compile(r"-[0-9]+(\.[0-9]+)?")


class NumbersAreArguments(TyperCommand):
    """A command without options such as `-5`, so that `-5` can only be an argument."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; a negative number is an argument."""
        # With them another unknown option would be taken for an argument too, and refused as one too many.
        ctx.ignore_unknown_options = any(map(NEGATIVE_NUMBER.fullmatch, args))
        return super().parse_args(ctx, args)
