"""Test `make release`: what it makes, and that each artefact answers from a clean place.

`test_packaging` does the same with wheels.
"""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rankcurve import Client

from deploy.release import release
from tests.clients.csharp_builds import build_client, build_program, run_program
from tests.environments import OFFLINE, new_environment, plain_variables, run
from tests.installed_clients import javascript_modules, node
from tests.service.real_service import ROOT, Process

SPEC = {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}]}
READ = """
import { Client } from "rankcurve";
const client = new Client(process.argv[2]);
await client.post("b", [{ owner: "ada", stats: { xp: 7 } }]);
console.log((await client.page("b")).entries[0].owner);
"""
FIRST = """
using Rankcurve;

static class Program {
    static void Main(string[] arguments) {
        using (var game = new Client(arguments[0])) {
            game.PostAsync("b", new Post("ada") { ["xp"] = 7 }).Wait();
            System.Console.Write(game.TopAsync("b", "xp").Result.Rows[0].Owner);
        }
    }
}
"""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "files"
    release(folder, javascript_modules())
    return folder


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a tarball of one folder. Return that folder."""
    folder.mkdir()
    run("tar", "-xzf", str(archive), "-C", str(folder))
    [unpacked] = folder.iterdir()
    return unpacked


def test_a_release_has_every_artefact_and_their_checksums(released: Path) -> None:
    [version] = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    names = {path.name.replace(version, "V") for path in released.iterdir()}
    assert names == {
        "rankcurve-V-py3-none-any.whl", "rankcurve-V.tar.gz", "rankcurve_client-V-py3-none-any.whl",
        "rankcurve_client-V.tar.gz", "rankcurve-V.tgz", "com.rankcurve.client-V.tgz", "Containerfile",
        "rankcurve.cdx.json", "SHA256SUMS",
    }  # fmt: skip
    checked = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=released).splitlines()
    assert len(checked) == len(names) - 1


def test_the_bill_of_materials_has_every_locked_package(released: Path) -> None:
    bill = json.loads((released / "rankcurve.cdx.json").read_text(encoding="utf-8"))
    lock = (ROOT / "deploy" / "requirements.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE))
    assert {(each["name"], each["version"]) for each in bill["components"]} == locked
    assert bill["metadata"]["component"]["name"] == "rankcurve"


def test_the_service_of_the_source_archives_answers(released: Path, tmp_path: Path) -> None:
    sources = [str(unpack(path, tmp_path / path.name)) for path in released.glob("*.tar.gz")]
    built = tmp_path / "built"
    words = (*OFFLINE, "--no-build-isolation", "--wheel-dir", str(built))
    run(sys.executable, "-m", "pip", "wheel", *words, *sources)
    made = new_environment(tmp_path / "installed")
    made.install(*built.iterdir())
    made.use_packages_of_tests()
    with (
        Process(tmp_path, program=(made.rankcurve,), variables=plain_variables()) as process,
        Client(process.url) as client,
    ):
        client.create_board("b", SPEC)
        client.post("b", [{"owner": "ada", "stats": {"xp": 7}}])
        assert client.positions("b", "ada")[0].rank == 1
        assert process.end() == 0


def test_a_program_with_only_the_npm_package_posts_and_reads(released: Path, tmp_path: Path) -> None:
    [tarball] = released.glob("rankcurve-*.tgz")
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (tmp_path / "read.mjs").write_text(READ, encoding="utf-8")
    subprocess.run(
        ["npm", "install", "--offline", "--silent", "--no-audit", "--no-fund", tarball],
        cwd=tmp_path,
        check=True,
        timeout=60,
    )
    with Process(tmp_path) as process, Client(process.url) as client:
        client.create_board("b", SPEC)
        assert run(str(node()), "read.mjs", process.url, cwd=tmp_path) == "ada\n"


def test_a_program_with_only_the_unity_package_posts_and_reads(released: Path, tmp_path: Path) -> None:
    [tarball] = released.glob("com.rankcurve.client-*.tgz")
    package = unpack(tarball, tmp_path / "unpacked")
    assert list(package.glob("Samples~/*/*.cs"))
    assert all(Path(f"{path}.meta").exists() for path in package.glob("Runtime/*.cs"))
    (tmp_path / "first.cs").write_text(FIRST, encoding="utf-8")
    first = build_program(build_client(tmp_path, package), tmp_path / "first.cs")
    with Process(tmp_path) as process, Client(process.url) as client:
        client.create_board("b", SPEC)
        assert asyncio.run(run_program(first, process.url)) == "ada"
