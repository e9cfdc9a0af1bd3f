"""Run the commands that the pages for operators show, one after the other, on real services.

These are the lines of blocks, and commands within sentences. Names and addresses of a page are replaced by those of
the test. `systemctl` starts and stops a service of the test. Every other command has to succeed.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rankcurve import Client

from tests.pages import run_block, shell_environment
from tests.servers import PostgresServer, free_port
from tests.service.real_service import ROOT, Process

DOCS = ROOT / "docs"
SHOWN = re.compile(
    r"^ *```sh\n(.*?)^ *```|`((?:curl|journalctl|systemctl|rankcurve [^`\s]+) [^`]+)`", re.MULTILINE | re.DOTALL
)
RUNS = [
    ("operating.md", "file"), ("operating.md", "postgres"), ("citus.md", "postgres"), ("postgresql.md", "postgres"),
    *((page, "file") for page in ("events.md", "families.md", "leagues.md", "leases.md", "monitoring.md", "queue.md")),
]  # fmt: skip
# By tests/test_tutorial.py and tests/test_game_without_server.py.
FOLLOWED = {"tutorial.md", "contest.md", "game_without_server.md", "rewards.md", "how_to.md", "migrating.md"}
SENT = {"endpoints.md"}  # by tests/service/http/test_openapi_operations.py

# The commands that no test of this module runs, by their first words, and why.
NOT_RUN = {
    "python -m pip wheel --no-deps": "tests/test_packaging.py builds both wheels",
    "pipx install": "tests/test_packaging.py installs the wheels",
    "python -m pip install dist/": "tests/test_packaging.py installs the wheels",
    "install -": "changes the machine; tests/test_deploy.py verifies what is installed",
    "python3 -m venv /opt/": "changes the machine",
    "/opt/rankcurve/bin/python -m pip install": "changes the machine",
    "ln -s": "changes the machine",
    "systemctl daemon-reload": "needs systemd; tests/test_deploy.py verifies the units by systemd-analyze",
    "systemctl restart": "needs systemd",
    "systemctl status": "needs systemd",
    "journalctl ": "needs systemd",
    "docker ": "needs a registry; tests/test_deploy.py reads the Containerfile",
    "createdb ": "tests/service/commands/test_e2e_backups.py restores the dump",
    "pg_dump ": "tests/service/commands/test_e2e_backups.py runs the block",
    "pg_restore ": "tests/service/commands/test_e2e_backups.py runs the block",
    "export PGOPTIONS=": "tests/service/commands/test_e2e_backups.py runs the block",
    "pg_receivewal ": "needs Citus; benchmarks/citus_page.py runs the block",
    "pg_basebackup ": "needs Citus; benchmarks/citus_page.py runs the block",
}
# One file and PostgreSQL have commands of their own.
ONLY_FILE = ("rankcurve backup", "rankcurve restore")
ONLY_POSTGRES = ("rankcurve partition ",)
LEASE = (
    "rankcurve pool create CLIENT POOL",
    "rankcurve pool add CLIENT POOL --region eu R1",
    "rankcurve lease get CLIENT POOL LEASE_KEY --region eu --seconds 3600",
)
SPEC = {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}]}


def shown_commands(page: str) -> list[str]:
    """Return the commands of a page, in order. A command that is shown several times stands where it was shown last."""
    found: dict[str, None] = {}
    for block, inline in SHOWN.findall((DOCS / page).read_text(encoding="utf-8")):
        for command in map(str.strip, block.splitlines() or [" ".join(inline.split())]):
            found.pop(command, None)
            found[command] = None
    return [command for command in found if command and "…" not in command]


class Operator:
    """Does what pages show with a service on a SQLite file, or with services on databases of a PostgreSQL server."""

    def __init__(self, folder: Path, create_database: Callable[[str], str] | None) -> None:
        self.folder, self.environment = folder, shell_environment()
        self.is_postgres, self._create_database = create_database is not None, create_database
        self._config = folder / "rankcurve.toml"
        self._process: Process | None = None
        self._databases = 0
        self._replaced: dict[str, str] = {}
        self.use_new_store()
        self.environment["RANKCURVE_CONFIG"] = str(self._config)

    def use_new_store(self) -> None:
        """Let the settings name a store that does not exist yet."""
        self._databases += 1
        if self._create_database is None:
            self.store = f"sqlite:///{self.folder}/store{self._databases}.db"
        else:
            self.store = self._create_database(f"page_{self.folder.name}_{self._databases}")
        shown = (ROOT / "deploy" / "rankcurve.toml").read_text(encoding="utf-8")
        settings, replaced = re.subn(r'^store = ".*"', f'store = "{self.store}"', shown, flags=re.MULTILINE)
        assert replaced == 1
        self._config.write_text(settings)

    def start(self) -> None:
        self._process = Process(self.folder, "--store", self.store, command=("serve",), variables=self.environment)
        self._process.ready()

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.end() == 0
        self._process = None

    def discard(self) -> None:
        if self._process is not None:
            self._process.discard()

    def do(self, shown: str) -> None:
        """Do one command of a page. Do nothing if the store is of another kind than the command is for."""
        command = shown.removeprefix("sudo -u rankcurve ")
        if command.startswith(ONLY_FILE if self.is_postgres else ONLY_POSTGRES):
            return
        if command.startswith("systemctl enable --now "):
            self.start()
            self.play()
            for line in LEASE:
                self.run(line)
        elif command.startswith("systemctl start "):
            self.start()
        elif command.startswith("systemctl stop "):
            self.stop()
        elif command.startswith(("rankcurve serve", "rankcurve jobs")):
            self._serve(command)
        elif command.startswith("rankcurve store init"):
            self.stop()
            self.use_new_store()
            self.run(command.replace(" --citus", ""))  # PostgreSQL without Citus takes the rest
            self.start()
            self.play()
        elif command.startswith("rankcurve rebuild"):
            self._rebuild(command)
        else:
            self.run(command)

    def _rebuild(self, command: str) -> None:
        """Rebuild a board. If the number of a post is given, somebody has deleted and created the board before."""
        if "--since" in command:
            [find] = [each for each in shown_commands("operating.md") if each.startswith("rankcurve journal ")]
            self._replaced["81234"] = str(json.loads(self.run(find))["seq"])
            with self.client() as client:
                client.delete_board("BOARD")
                client.create_board("BOARD", SPEC)
        if not self.is_postgres:
            self.stop()
        self.run(command)
        if not self.is_postgres:
            self.start()
        with self.client() as client:
            assert client.entry("BOARD", "ada").stats["xp"] == 7
            client.refresh_curve("BOARD", "xp")

    def _serve(self, command: str) -> None:
        """Start another process on the store, see that it serves, and stop it."""
        [words] = re.findall(r"^rankcurve ([^#]+)", command)
        name, *options = re.sub(r"--store \S+", "", re.sub(r"--port \d+", f"--port {free_port()}", words)).split()
        variables = self.environment | {"RANKCURVE_PORT": "0"}
        process = Process(self.folder, "--store", self.store, *options, command=(name,), variables=variables)
        try:
            process.await_line("working" if name == "jobs" else "serving")
            assert process.end() == 0
        finally:
            process.discard()

    def run(self, command: str) -> str:
        for pattern, text in {
            r"postgresql://[^\s']+": self.store,
            r"/etc/rankcurve/rankcurve\.toml|\bFILE\b": str(self._config),
            "/var/backups/rankcurve": str(self.folder),
            "^curl ": "curl --silent --show-error --fail-with-body ",
            "name=NAME/": "name=prune/",
            r"http://(127\.0\.0\.1|HOST):8080": self.environment["RANKCURVE_URL"],
            **self._replaced,
        }.items():
            command = re.sub(pattern, text, command)
        # A shell has no pipefail unless somebody sets it. Here, `grep -m1` ends before the command that it reads.
        shown = f"set +o pipefail; {command}" if "|" in command else command
        printed = run_block(shown, self.folder, self.environment)
        if "/jolokia/" in command:
            assert json.loads(printed)["status"] == 200, f"{command}\n{printed}"
        if command.startswith("rankcurve keys create operator"):
            self.environment |= {"OPERATOR_KEY": printed.strip(), "RANKCURVE_KEY": printed.strip()}
        elif command.startswith("rankcurve keys list") and (
            listed := re.search(r"^(\w+) +game-server ", printed, re.M)
        ):
            self._replaced[r"\bID\b"] = listed[1]
        return printed

    def client(self) -> Client:
        return Client(self.environment["RANKCURVE_URL"], self.environment.get("RANKCURVE_KEY"))

    def play(self) -> None:
        """Create what the commands of the pages are about, by the names that the pages use."""
        with self.client() as client:
            client.create_board("BOARD", SPEC)
            client.post("BOARD", [{"owner": "ada", "stats": {"xp": 7}}])
            client.refresh_curve("BOARD", "xp")


@pytest.fixture
def operator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Operator]:
    """Yield an operator with a store of the kind that the test's parameter names."""
    assert shutil.which("curl"), "apt-get install curl"
    create_database: Callable[[str], str] | None = None
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        create_database = server.create_database
    made = Operator(tmp_path, create_database)
    yield made
    made.discard()


@pytest.mark.parametrize(("page", "operator"), RUNS, indirect=["operator"])
def test_every_command_of_a_page_succeeds_or_is_listed_with_the_reason(page: str, operator: Operator) -> None:
    if page != "operating.md":  # which creates the store itself
        operator.start()
        operator.play()
    elif operator.is_postgres:
        operator.run(f"rankcurve store init --partitions 4 --store {operator.store}")
    for command in shown_commands(page):
        if not command.startswith(tuple(NOT_RUN)):
            operator.do(command)


def test_every_page_with_commands_is_run_by_a_test_and_no_exception_is_left_over() -> None:
    pages = {path.name for path in DOCS.glob("*.md") if "```sh\n" in path.read_text(encoding="utf-8")}
    assert pages - {page for page, _ in RUNS} == FOLLOWED | SENT
    commands = [command for page, _ in RUNS for command in shown_commands(page)]
    assert [start for start in NOT_RUN if not any(command.startswith(start) for command in commands)] == []
