"""The error class of this package. Its message never holds a secret: whoever raises it masks all values first."""


class ConfigError(ValueError):
    """The configuration cannot be used. `problems` lists all reasons, one sentence each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
