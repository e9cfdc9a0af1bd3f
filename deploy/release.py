"""Make everything that a release publishes, in an empty folder: `make release`, into build/release.

The files are the wheels and source archives of the service and of its Python client, the tarballs of the TypeScript
client (for npm) and of the Unity client (for Unity's package manager), the Containerfile, a bill of materials of the
service's locked packages (CycloneDX), and SHA256SUMS of all of them. The version is that of pyproject.toml, and the
release ends if another package has a different one. `.github/workflows/release.yml` publishes the files.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELEASE = ROOT / "build" / "release"
PYTHON_PROJECTS = (ROOT, ROOT / "clients" / "python")
TYPESCRIPT = ROOT / "clients" / "typescript"
NODE_PACKAGES = (TYPESCRIPT, ROOT / "clients" / "csharp")
_STEP_S_MAX = 300


def release(folder: Path, node_modules: Path) -> None:
    """Make the files of a release. `node_modules` has what builds the TypeScript client.

    Raises:
        SystemExit: the versions of the packages differ.
        CalledProcessError: a tool failed.
    """
    check_versions()
    folder.mkdir(parents=True)
    for project in PYTHON_PROJECTS:
        _run(sys.executable, "-m", "hatchling", "build", "--directory", folder, cwd=project)
    _run("node", node_modules / "typescript" / "bin" / "tsc", "--project", TYPESCRIPT)
    for package in NODE_PACKAGES:
        _run("npm", "pack", "--silent", "--pack-destination", folder, cwd=package)
    shutil.copy(ROOT / "deploy" / "Containerfile", folder)
    _run(
        sys.executable, "-m", "cyclonedx_py", "requirements", ROOT / "deploy" / "requirements.lock",
        "--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--output-file", folder / "rankcurve.cdx.json",
    )  # fmt: skip
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="ascii")


def check_versions() -> None:
    """Raise SystemExit unless all packages have the version of the service."""
    found = {}
    for project in PYTHON_PROJECTS:
        document = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
        found[project.name] = document["project"]["version"]
    for package in NODE_PACKAGES:
        found[package.name] = json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
    if len(set(found.values())) > 1:
        sys.exit(f"the packages have different versions: {found}")


def _run(*command: str | Path, cwd: Path = ROOT) -> None:
    subprocess.run(command, cwd=cwd, check=True, timeout=_STEP_S_MAX, stdout=sys.stderr)


if __name__ == "__main__":
    shutil.rmtree(RELEASE, ignore_errors=True)
    release(RELEASE, ROOT / "build" / "clients" / "npm" / "node_modules")
    print("\n".join(str(path) for path in sorted(RELEASE.iterdir())))
