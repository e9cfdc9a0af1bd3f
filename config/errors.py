"""The only error of this package. It lists everything that is wrong with a configuration.

A message never holds a secret; the code that raises the error masks values first.
"""


class ConfigError(ValueError):
    """The configuration cannot be used. `problems` lists all the reasons, one sentence each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
