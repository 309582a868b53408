"""Where the browser is that the tests drive: `python -m tests.browser.chromium` prints it.

Installs Debian's chromium where there is none and we may.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES = ("chromium", "fonts-liberation")

# `--no-sandbox` because containers and root have none; the pages are our own.
ARGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking")


def find() -> str:
    """Path of a browser: $CHROMIUM, else the first on PATH, else what apt-get installs as root.

    Raises: RuntimeError saying what to install or to set.
    """
    named = os.environ.get("CHROMIUM")
    if named:
        path = shutil.which(named)
        if path is None:
            raise RuntimeError(
                f"CHROMIUM={named!r} is not a program that can be run; name one or unset it."
            )
        return path
    path = _on_path()
    if path is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        path = _on_path()
    if path is None:
        raise RuntimeError(
            "No browser for the tests: install Debian's package chromium (or Google Chrome), "
            "or set CHROMIUM to the path of one."
        )
    return path


def _on_path() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _install() -> None:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES],
    ):
        # Its words go to stderr: stdout is for the path. A failure shows as a missing browser.
        subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)


if __name__ == "__main__":
    try:
        print(find())
    except RuntimeError as why:
        sys.exit(str(why))
