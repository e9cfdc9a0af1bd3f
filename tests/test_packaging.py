"""Test what users install: the wheels of the service and of its client, and the command in an environment of its own.

The wheels are built from this tree and installed into new environments without network. Packages of others come from
the environment of the tests. The programs run in empty folders outside of the tree.
"""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from service.own_packages import PACKAGES
from tests.environments import OFFLINE, Environment, build, new_environment, plain_variables, run
from tests.schemas import fresh_store
from tests.service.real_service import WAIT_S, Process

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "clients" / "python"
ENTRY_POINT = "rankcurve_command.py"
POST = """
import sys
from importlib.util import find_spec

import rankcurve

with rankcurve.Client(sys.argv[1]) as client:
    client.create_board("b", {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}]})
    [result] = client.post("b", [{"owner": "ada", "stats": {"xp": 7}}])
    print(result.status, client.entry("b", "ada").stats)
print(rankcurve.__file__)
print([name for name in sys.argv[2:] if find_spec(name)])
"""


def read_project(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def files_below(folder: Path, *names: str) -> set[str]:
    """Return the files below these folders of `folder`, without compiled ones."""
    paths = {path for name in names for path in (folder / name).rglob("*") if path.is_file()}
    return {path.relative_to(folder).as_posix() for path in paths if path.suffix != ".pyc"}


def packed_files(wheel: Path) -> set[str]:
    """Return the names of the files in a wheel. Leave out its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build both wheels of this tree as `docs/operating.md` says. Return them by the names of their distributions."""
    folder = tmp_path_factory.mktemp("wheels")
    command = (sys.executable, "-m", "pip", "wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", str(folder))
    run(*command, str(ROOT), str(CLIENT))
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install both wheels into a new environment."""
    made = new_environment(tmp_path_factory.mktemp("installed"))
    made.install(*wheels.values())
    made.use_packages_of_tests()
    return made


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install this tree as `make install` does: the environment has only the paths of the tree."""
    made = new_environment(tmp_path_factory.mktemp("editable"))
    folder = tmp_path_factory.mktemp("editable_wheels")
    for project in (ROOT, CLIENT):
        wheels = build("wheel:editable", project=project, folder=folder)
    made.install(*wheels)
    made.use_packages_of_tests()
    return made


@pytest.fixture(params=["installed", "editable"])
def environment(request: pytest.FixtureRequest, wheels: object) -> Environment:
    """Return an environment with the command, once from the wheels and once from the tree."""
    found: Environment = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Return a folder with packages of the same names as ours. Importing any of them fails."""
    for name in PACKAGES:
        (tmp_path / "foreign" / name).mkdir(parents=True)
        (tmp_path / "foreign" / name / "__init__.py").write_text(f"raise ImportError('a foreign {name}')\n")
    return tmp_path / "foreign"


@pytest.fixture
def serving(installed: Environment, tmp_path: Path) -> Iterator[Process]:
    """Run the installed service on SQLite, in an empty folder."""
    with Process(tmp_path, program=(installed.rankcurve,), variables=plain_variables()) as process:
        yield process


def test_the_wheel_of_the_service_has_its_packages_with_their_data_and_the_entry_point(wheels: dict[str, Path]) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert set(declared["targets"]["wheel"]["packages"]) == PACKAGES
    packed = packed_files(wheels["rankcurve"])
    assert {name.partition("/")[0] for name in packed} == {*PACKAGES, ENTRY_POINT}
    moved = f"service/entry_point/{ENTRY_POINT}"
    assert packed == files_below(ROOT, *PACKAGES) - {moved} | {ENTRY_POINT}
    assert {"config/default.toml", "service/monitoring/dashboard/page/index.html"} <= packed


def test_the_wheel_of_the_client_has_only_its_package_with_types(wheels: dict[str, Path]) -> None:
    packed = packed_files(wheels["rankcurve_client"])
    assert packed == files_below(CLIENT, "rankcurve")
    assert "rankcurve/py.typed" in packed


def test_the_source_archive_of_the_client_builds_the_same_wheel(wheels: dict[str, Path], tmp_path: Path) -> None:
    [archive] = build("sdist", project=CLIENT, folder=tmp_path / "archive")
    run("tar", "-xzf", str(archive), "-C", str(tmp_path))
    [unpacked] = tmp_path.glob("rankcurve_client-*")
    [wheel] = build("wheel", project=unpacked, folder=tmp_path / "wheel")
    assert wheel.read_bytes() == wheels["rankcurve_client"].read_bytes()


def test_the_metadata_of_the_wheels_say_what_the_projects_declare(installed: Environment) -> None:
    found = {each.name: each for each in metadata.distributions(path=[str(installed.packages)])}
    assert found.keys() == {"rankcurve", "rankcurve-client"}
    for project in (read_project(ROOT), read_project(CLIENT)):
        one = found[project["name"]]
        wanted = {each for each in map(Requirement, one.requires or []) if "extra" not in str(each.marker)}
        assert wanted == set(map(Requirement, project["dependencies"]))
        assert one.metadata["Requires-Python"] == project["requires-python"]
    service, client = found["rankcurve"], found["rankcurve-client"]
    assert service.version == client.version
    assert f"rankcurve-client=={client.version}" in (service.requires or [])
    scripts = [(each.group, each.name, each.value) for each in service.entry_points]
    assert scripts == [("console_scripts", "rankcurve", "rankcurve_command:main")]
    assert list(client.entry_points) == []


def test_the_installed_packages_come_from_the_wheels(installed: Environment, tmp_path: Path) -> None:
    names = [*sorted(PACKAGES), "rankcurve", "rankcurve_command"]
    program = "import sys\nfor name in sys.argv[1:]: print(__import__(name).__file__)"
    files = run(installed.python, "-c", program, *names, cwd=tmp_path).splitlines()
    assert len(files) == len(names)
    assert [file for file in files if not Path(file).is_relative_to(installed.packages)] == []


def test_a_program_with_only_the_client_posts_to_the_installed_service(
    wheels: dict[str, Path], serving: Process, tmp_path: Path
) -> None:
    alone = new_environment(tmp_path / "client")
    alone.install(wheels["rankcurve_client"])
    for package in ("httpx", "msgspec"):
        alone.link(package)
    folder = tmp_path / "empty"
    folder.mkdir()
    posted, file, others = run(alone.python, "-c", POST, serving.url, *PACKAGES, cwd=folder).splitlines()
    assert posted == "applied {'xp': 7}"
    assert Path(file).is_relative_to(alone.packages)
    assert others == "[]"
    assert serving.end() == 0


def test_the_command_ignores_foreign_packages_of_the_same_names(environment: Environment, foreign: Path) -> None:
    version = run(environment.rankcurve, "--version", cwd=foreign, PYTHONPATH=f"{foreign}{os.pathsep}")
    assert version == f"rankcurve {read_project(ROOT)['version']}\n"
    assert "sqlite_cache_mib" in run(environment.rankcurve, "config", cwd=foreign, PYTHONPATH=str(foreign))
    assert "serve" in run(environment.rankcurve, "--help", cwd=foreign, PYTHONPATH=".")


async def test_several_processes_serve_beside_foreign_packages(
    installed: Environment, foreign: Path, postgres_url: str
) -> None:
    variables = plain_variables(PYTHONPATH=str(foreign))
    async with fresh_store(postgres_url) as store:
        words = ("--workers", "2", "--store", store)
        with Process(foreign, *words, program=(installed.rankcurve,), variables=variables) as process:
            assert process.end() == 0


def test_the_typescript_client_is_built_without_the_packages_of_the_development(tmp_path: Path) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "typescript", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT, capture_output=True, check=True, text=True, timeout=WAIT_S,
    ).stdout  # fmt: skip
    assert "pip" not in shown
    [script] = [line.split() for line in shown.splitlines() if "install_missing.sh" in line]
    assert (script[0], script[2:]) == ("tests/install_missing.sh", ["typescript"])
    calls, _ = install_missing(tmp_path, script[2])
    assert installed_packages(calls) == [["nodejs"]], "npm is there"
    assert [call[1] for call in calls if call[0] == "npm"] == ["ci"]
    assert "python" not in {call[0] for call in calls}


def test_a_package_that_a_release_does_not_offer_keeps_no_other_one_away(tmp_path: Path) -> None:
    calls, errors = install_missing(tmp_path, "typescript", unknown="nodejs")
    assert installed_packages(calls) == []
    assert "no package nodejs" in errors
    assert [call[1] for call in calls if call[0] == "npm"] == ["ci"]


def install_missing(folder: Path, *words: str, unknown: str = "") -> tuple[list[list[str]], str]:
    """Run the script on a machine that has nothing but a shell and its tools. `apt-get` and `npm` note what they do.

    `unknown`: a package that the machine's release does not have. Return the calls, and the complaints.
    """
    shutil.copytree(ROOT / "tests" / "clients", folder / "tests" / "clients")
    shutil.copy(ROOT / "tests" / "install_missing.sh", folder / "tests")
    (folder / "bin").mkdir()
    for name in ("sh", "dirname", "cmp", "cp", "env", "id", "ls", "mkdir", "touch"):
        (folder / "bin" / name).symlink_to(shutil.which(name) or name)
    noting = f'echo "${{0##*/}}" "$@" >>{folder}/calls'
    showing = f'[ "$2" = "{unknown}" ] || echo Package: "$2"'
    for name in ("apt-get", "apt-cache", "sudo", "npm", "python"):
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{showing if name == 'apt-cache' else noting}\n", encoding="utf-8")
        program.chmod(0o755)
    done = subprocess.run(
        [folder / "tests" / "install_missing.sh", "python", *words], env={"PATH": str(folder / "bin")},
        check=True, timeout=WAIT_S, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    return [line.split() for line in (folder / "calls").read_text().splitlines()], done.stderr


def installed_packages(calls: list[list[str]]) -> list[list[str]]:
    installed = [call[call.index("install") + 1 :] for call in calls if "install" in call]
    return [[word for word in call if word[0] != "-"] for call in installed]
