"""Check the style of the project, so that reviewers need not.

Each check lists all violations with file and line. No file can switch off a check.
"""

import ast
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PACKAGES = ("config", "querybuilder", "predictor", "storage", "jobs", "service")
PYTHON_FOLDERS = (*PACKAGES, "benchmarks", "clients", "tests")
FUNCTION_LINES_MAX = 60
# These patterns also find DDL. PRAGMA and BEGIN only set up a connection, so they are not queries.
SQL = re.compile(
    r"\s*(select\b.*\bfrom\b|with\b.*\bas\s*\(|insert\s+(or\s+\w+\s+)?into\b|replace\s+into\b|update\b.*\bset\b"
    r"|delete\s+from\b|(create|drop|alter)\s+(unique\s+)?(table|index|trigger|view)\b)",
    re.IGNORECASE | re.DOTALL,
)
# Each word is built from two parts, because these checks also search this file and must not find the word here.
QUESTION = re.compile(r"(What|Whether|How|Where|Which|Who|When|Why)\b")
LEFTOVERS = re.compile(
    "|".join(("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error", r"pytest\.(mark\.)?(skip|x" + "fail)"))
)
WORKPLACE = re.compile(
    "|".join(
        (
            "/wo" + "rk/", r"\.\./sha" + "red", r"/ro" + r"ot/\.", r"/home/" + r"\w", r"/tmp/" + r"(?!pytest)\w",
            "farm-" + "(studio|bench)", "before-" + "stop", "(extra-)?index-" + "url", "find-" + "links",
            "/sim" + "ple/" + '?[" ]', "py" + r"pi\.org", "pythonhosted" + r"\.org",
        )
    )
)  # fmt: skip


@cache
def _sources() -> dict[Path, str]:
    paths = (path for folder in PYTHON_FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    return {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in paths}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_sources()[path])


def _texts() -> Iterator[tuple[Path, str]]:
    """Yield path and text of every text file, except files that tools or runs of the program create."""
    for folder, folders, files in os.walk(ROOT):
        made = {"data", "build", "dist", "__pycache__"}
        folders[:] = [
            name for name in folders if name in (".ci", ".github") or not (name.startswith(".") or name in made)
        ]
        for name in files:
            if name == ".git":  # in a git worktree, `.git` is a file that only says where the repository is
                continue
            path = Path(folder, name)
            content = path.read_bytes()
            if b"\x00" not in content:
                yield path.relative_to(ROOT), content.decode("utf-8", errors="replace")


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.parent.parts[: len(path.parent.parts) - node.level + 1] if node.level else ()
            base = ".".join((*package, *([node.module] if node.module else [])))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def test_every_function_fits_a_screen() -> None:
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path in _sources()
        for node in _functions(_tree(path))
        if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_every_module_has_a_docstring() -> None:
    assert [str(path) for path in _sources() if not (ast.get_docstring(_tree(path)) or "").strip()] == []


def _started(path: Path) -> bool:
    """Return whether a file runs under its own name: as a test, as a script, or by `python -m`."""
    if path.parts[0] == "tests" and (path.name.startswith("test_") or path.name == "conftest.py"):
        return True
    return path.name == "__main__.py" or '__name__ == "__main__"' in _sources()[path]


def test_every_module_is_imported_by_another_or_started_by_name() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    used = {target.partition(":")[0] for target in scripts.values()}
    used_by_tests: set[str] = set()
    for path in _sources():
        # A module that only tests import is not part of the product.
        importers = used_by_tests if path.parts[0] == "tests" else used
        importers.update(name for name in _imported(path) if name != _module(path))
    dead = [
        str(path)
        for path in _sources()
        if not (path.name == "__init__.py" or _started(path))
        and _module(path) not in (used_by_tests if path.parts[0] == "tests" else used)
    ]
    assert dead == []


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every string except docstrings. Each field of an f-string becomes `?`."""
    docstrings = {
        id(node.value)
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "?" for part in node.values)
            yield node.lineno, "".join(parts)


def test_only_the_querybuilder_writes_sql() -> None:
    found = [
        f"{path}:{line} {text[:60]!r}"
        for path in _sources()
        if path.parts[0] in PACKAGES and path.parts[0] != "querybuilder"
        for line, text in _strings(path)
        if SQL.match(text)
    ]
    assert found == []


def _functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (each for each in ast.walk(node) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def _returned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return "" if function.returns is None else ast.unparse(function.returns)


def _program_names(paths: Iterable[Path]) -> set[str]:
    """Return the names of functions that return a `Program`. Leave out names that other functions also have.

    An operation of the Python client is a program that its decorator makes a method, which callers call.
    """
    programs, others = set[str](), set[str]()
    for path in paths:
        for function in _functions(_tree(path)):
            decorated = any(ast.unparse(each) == "operation" for each in function.decorator_list)
            is_program = _returned(function).startswith("Program[") and not decorated
            (programs if is_program else others).add(function.name)
    return programs - others


def _called(node: ast.AST) -> str:
    """Return the name of the called function, or an empty text if `node` is not a call."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", None) or getattr(node.func, "id", None) or ""


def _yielded(node: ast.AST) -> Iterator[ast.expr]:
    """Yield each expression that a `yield` below `node` may yield. A conditional expression counts as both branches.

    Instead of `query.at(partition)`, yield `query`.
    """
    for each in ast.walk(node):
        if isinstance(each, ast.Yield) and each.value is not None:
            either = isinstance(each.value, ast.IfExp)
            for query in (each.value.body, each.value.orelse) if either else (each.value,):  # type: ignore[attr-defined]
                placed = _called(query) == "at"
                yield query.func.value if placed else query  # type: ignore[union-attr]


def test_no_program_is_called_without_yield_from() -> None:
    everywhere = {name for name in _program_names(_sources()) if not name.startswith("_")}
    assert len(everywhere) > 100
    forgotten = []
    for path in _sources():
        # Other modules may use the same private names for other functions, so only private names of this file count.
        programs = everywhere | {name for name in _program_names([path]) if name.startswith("_")}
        # A program never runs if it is called as a statement, or if it is yielded as a query.
        statements = (node.value for node in ast.walk(_tree(path)) if isinstance(node, ast.Expr))
        forgotten += [
            f"{path}:{call.lineno} {ast.unparse(call)[:60]}"
            for call in (*statements, *_yielded(_tree(path)))
            if _called(call) in programs
        ]
    assert forgotten == []


def test_test_folders_are_not_packages_and_no_test_sleeps() -> None:
    tests = [path for path in _sources() if path.parts[0] == "tests"]
    assert [str(path) for path in tests if path.name == "__init__.py"] == []
    sleeps = [
        f"{path}:{node.lineno}"
        for path in tests
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call)
        and _called(node) == "sleep"
        # sleep(0) is allowed, because it lets other tasks run without waiting.
        and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
    ]
    assert sleeps == []


def _matching_lines(texts: Iterable[tuple[Path, str]], wanted: re.Pattern[str]) -> list[str]:
    return [
        f"{path}:{number} {line.strip()[:100]}"
        for path, text in texts
        for number, line in enumerate(text.splitlines(), start=1)
        if wanted.search(line)
    ]


def test_no_file_leaves_work_for_later() -> None:
    assert _matching_lines(_sources().items(), LEFTOVERS) == []


def test_no_file_mentions_the_machine_that_it_was_written_on() -> None:
    assert _matching_lines(_texts(), WORKPLACE) == []


def test_the_lock_pins_every_package_with_hashes_and_names_no_registry() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    logical = [
        line for line in lock.replace("\\\n", " ").splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    assert [line for line in logical if not re.match(r"[a-z0-9.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line)] == []
    assert "://" not in lock
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*declared["project"]["dependencies"], *declared["dependency-groups"]["dev"]]
    locked = {line.partition("==")[0] for line in logical}
    assert {re.split(r"[><=;\[ ]", want)[0] for want in wanted} - locked == {"rankcurve-client"}, "of this tree"


def read_workflow(name: str) -> dict[str, Any]:
    path = ROOT / ".github" / "workflows" / name
    workflow: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return workflow


def test_a_tag_publishes_what_make_release_makes_and_only_publishing_jobs_may_write() -> None:
    jobs = read_workflow("release.yml")["jobs"]
    assert {"run": "make release"} in jobs["build"]["steps"]
    assert {name for name, job in jobs.items() if "build" not in job.get("needs", ())} == {"build", "page"}
    assert {name: job["permissions"] for name, job in jobs.items() if "permissions" in job} == {
        "python": {"id-token": "write"},
        "npm": {"id-token": "write"},
        "page": {"contents": "write"},
    }
    assert [name for name, job in jobs.items() if "secrets." in str(job)] == ["image"]


def test_the_hosted_ci_runs_what_the_local_one_runs_and_may_only_read() -> None:
    workflow = read_workflow("ci.yml")
    local = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert local[-3:] == ["make check", "make test", "tests/fresh_machine.sh trixie"]
    fresh = (ROOT / "tests" / "fresh_machine.sh").read_text(encoding="utf-8")
    followed = [line[1] for line in re.finditer(r"^run (make \w+(?: ARGS=--\w+)?)", fresh, re.MULTILINE)]
    [job] = workflow["jobs"].values()
    installing, *steps = [step["run"] for step in job["steps"] if "run" in step]
    assert steps == followed == ["make demo ARGS=--once", "make check", "make test"]
    # Both start from a minimal installation with the packages that the pages ask for.
    [packages] = re.findall(r"^packages=(.+)$", fresh, re.MULTILINE)
    assert installing.endswith(f" {packages.replace(',', ' ')}")
    for page in ("README.md", "CONTRIBUTING.md"):
        assert f"`{packages.replace(',', ' ')}`" in (ROOT / page).read_text(encoding="utf-8"), page
    assert job["strategy"]["matrix"]["image"] == ["debian:bookworm", "debian:trixie"]
    assert [step["uses"] for step in job["steps"] if not re.fullmatch(r"[\w/-]+@v\d+", step.get("uses", "a@v1"))] == []
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["cancel-in-progress"] is True
    assert job["timeout-minutes"] == 90


def test_docstrings_say_what_things_are_and_ask_nothing() -> None:
    asking = [
        f"{path}:{getattr(node, 'lineno', 1)} {docstring.splitlines()[0]}"
        for path in _sources()
        if path.suffix == ".py"
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (docstring := ast.get_docstring(node)) is not None
        and QUESTION.match(docstring)
    ]
    assert asking == []
