"""The error class of this package. Code that raises it masks all values, so that no message contains a secret."""


class ConfigError(ValueError):
    """The configuration cannot be used. `problems` lists all reasons, one sentence each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
