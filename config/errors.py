"""The one error of this package: it tells whoever starts the service everything that is wrong with its configuration.

The rule: a message never holds a secret; the code that raises the error masks values first.
"""


class ConfigError(ValueError):
    """The configuration cannot be used; `problems` lists every reason, one sentence each, none hidden by another."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
