"""A real Streamlit server for a test: `with serve("app.py", tmp_path / "runs") as server:`."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parent.parent.parent
STREAMLIT = Path(sys.executable).parent / "streamlit"
READY_WITHIN_S = 60
GONE_WITHIN_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    url: str  # without a slash at the end
    pid: int
    log: Path  # what the server says, its worker included

    def get(self, path: str, timeout_s: float = 30) -> tuple[int, str]:
        """Status and text of one GET."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=timeout_s) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as why:
            with why:
                return why.code, why.read().decode()


@contextlib.contextmanager
def serve(
    entry: str,
    runs_folder: Path,
    port: int | None = None,
    options: tuple[str, ...] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Server]:
    """`streamlit run ENTRY` on a free port, from healthy to gone.

    `options`: further flags, as in ("--theme.base", "dark"). `variables`: of its environment. Runs
    as a visitor would start it: from the root of the project, with nothing put on Python's path.

    Raises: AssertionError with the server's own words if it ends or does not become healthy.
    """
    port = port or free_port()
    runs_folder.mkdir(parents=True, exist_ok=True)
    log = runs_folder.with_name(f"{runs_folder.name}-server-{port}.log")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env |= {"BOTHWAYS_RUNS": str(runs_folder), **variables}
    flags = {
        "server.port": port,
        "server.address": "127.0.0.1",
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [STREAMLIT, "run", entry, *(f"--{k}={v}" for k, v in flags.items()), *options],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its own process group, for the end
        )
    server = Server(url=f"http://127.0.0.1:{port}", pid=process.pid, log=log)
    try:
        _wait_until_healthy(server, process)
        yield server
    finally:
        _end(process)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _wait_until_healthy(server: Server, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError):
            if server.get("/_stcore/health", timeout_s=2) == (200, "ok"):
                return
        time.sleep(0.1)
    words = server.log.read_text(errors="replace")[-4000:]
    raise AssertionError(f"not healthy, exit code {process.poll()}:\n{words}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask the server to end, then end whatever is left of its process group."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GONE_WITHIN_S)
    with contextlib.suppress(ProcessLookupError):  # the usual case: all of it is gone
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
