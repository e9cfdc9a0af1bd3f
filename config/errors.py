"""Why here: whoever starts the service learns everything that is wrong with its configuration at once.

The one rule: a message never holds a secret; whoever raises masks first.
"""


class ConfigError(ValueError):
    """The configuration cannot be used; `problems` lists every reason, one sentence each, none hidden by another."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
