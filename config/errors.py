"""The only error class of this package. An error lists everything that is wrong with a configuration.

The message never holds a secret, because the code that raises the error masks all values first.
"""


class ConfigError(ValueError):
    """The configuration cannot be used. `problems` lists all the reasons, one sentence each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
