"""New environments of Python, as users have them: what is installed there comes from files of this machine only."""

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.service.real_service import ROOT, WAIT_S

# What pip and hatchling need to work from files of this machine only, as they are.
OFFLINE = ("--no-index", "--no-deps", "--quiet", "--disable-pip-version-check")


@dataclass(frozen=True)
class Environment:
    """A virtual environment of Python."""

    folder: Path

    @property
    def packages(self) -> Path:
        """The folder of the installed packages."""
        [found] = self.folder.glob("lib/python*/site-packages")
        return found

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def rankcurve(self) -> str:
        return str(self.folder / "bin" / "rankcurve")

    def install(self, *wheels: Path) -> None:
        run(sys.executable, "-m", "pip", "--python", self.python, "install", *OFFLINE, *map(str, wheels))

    def use_packages_of_tests(self) -> None:
        """Let programs import all packages of the tests' environment.

        Python does not read .pth files in these folders, so the editable install of this tree has no effect.
        """
        folders = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
        (self.packages / "others.pth").write_text("\n".join(folders))

    def link(self, package: str) -> None:
        """Put one package of the tests' environment, and the packages that it needs, into this environment."""
        distribution = metadata.distribution(package)
        assert distribution.files is not None
        for name in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            if not (self.packages / name).exists():
                (self.packages / name).symlink_to(Path(str(distribution.locate_file(name))))
        for wanted in map(Requirement, distribution.requires or []):
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                self.link(wanted.name)


def plain_variables(**more: str) -> dict[str, str]:
    """Return the environment variables without those of Python and of the service, and with these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RANKCURVE_"))}
    return {**kept, "NO_COLOR": "1", **more}


def run(*command: str, cwd: Path = ROOT, **variables: str) -> str:
    """Run a program that must succeed. Return its output."""
    done = subprocess.run(
        command, cwd=cwd, env=plain_variables(**variables), capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def build(*targets: str, project: Path, folder: Path) -> list[Path]:
    """Build a project with its own build tool. Return the built files."""
    words = [word for target in targets for word in ("--target", target)]
    run(sys.executable, "-m", "hatchling", "build", "--directory", str(folder), *words, cwd=project)
    return sorted(folder.iterdir())


def new_environment(folder: Path) -> Environment:
    venv.create(folder, with_pip=False, symlinks=True)
    return Environment(folder)
