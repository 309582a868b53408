"""Where the node is that runs the JavaScript tests: `python -m tests.browser.node` prints it."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = 20  # its test runner is stable


def find() -> str:
    """Path of a node to use: the one on PATH if it is new enough, else the one playwright carries.

    Raises: RuntimeError saying what to install.
    """
    for path in (shutil.which("node"), _carried_by_playwright()):
        if path and _version(path) >= OLDEST:
            return path
    raise RuntimeError(
        f"No node of version {OLDEST} or newer: run `pip install -r requirements-dev.txt`, whose "
        "playwright package carries one, or install nodejs."
    )


def _carried_by_playwright() -> str | None:
    package = importlib.util.find_spec("playwright")
    if package is None or package.origin is None:
        return None
    path = Path(package.origin).parent / "driver" / "node"
    return str(path) if path.is_file() else None


def _version(path: str) -> int:
    """The major version; 0 if it does not run."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
        return int(said.stdout.lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0


if __name__ == "__main__":
    try:
        print(find())
    except RuntimeError as why:
        sys.exit(str(why))
