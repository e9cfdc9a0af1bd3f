"""Compile the C# client, and programs that use it, with Mono, and run them."""

import asyncio
import shutil
import subprocess
from pathlib import Path

from tests.installed_clients import newtonsoft
from tests.servers import INSTALL_HINT, ServerMissingError, program
from tests.service.real_service import ROOT, WAIT_S

CLIENT = ROOT / "clients" / "csharp"
LIBRARIES = Path("/usr/lib/mono/4.5")


def mono() -> Path:
    """Return the program that runs what was compiled. Raises ServerMissingError if something of Mono is missing."""
    for name in ("net-http", "runtime-serialization"):
        library = LIBRARIES / f"System.{name.replace('-', '.').title()}.dll"
        if not library.exists():
            package = f"libmono-system-{name}4.0-cil"
            raise ServerMissingError(f"the tests need {library}, of Debian's package {package}: {INSTALL_HINT}")
    return program("mono", "mono-runtime")


def build_client(folder: Path, client: Path = CLIENT) -> Path:
    """Compile the client as C# 7. Raises AssertionError if the compiler has a warning. Return the library."""
    library = folder / "Rankcurve.dll"
    sources = sorted((client / "Runtime").glob("*.cs"))
    compile_sources(library, *sources, options=["-target:library", f"-doc:{folder / 'Rankcurve.xml'}", "-nowarn:1591"])
    return library


def compile_sources(output: Path, *sources: Path, options: list[str]) -> None:
    """Compile C# files into a library or a program in a folder that has everything that they need to run."""
    mono()
    json = shutil.copy(newtonsoft(), output.parent)  # Mono looks for libraries beside the program
    references = [f"-r:{each}" for each in ("System.Net.Http", "System.Numerics", json)]
    command = ["-langversion:7", "-warn:4", "-warnaserror", f"-out:{output}", *references, *options]
    words = [str(program("mcs", "mono-mcs")), *command, *map(str, sources)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def build_program(library: Path, *sources: Path) -> Path:
    """Compile a program that uses the client, beside it."""
    output = library.parent / f"{sources[0].stem}.exe"
    compile_sources(output, *sources, options=[f"-r:{library}"])
    return output


async def run_program(program: Path, *arguments: str) -> str:
    """Run a program in Mono, and return what it prints."""
    running = await asyncio.create_subprocess_exec(mono(), program, *arguments, stdout=-1, stderr=-1)
    printed, errors = await asyncio.wait_for(running.communicate(), WAIT_S)
    assert running.returncode == 0, errors.decode()
    return printed.decode()
