"""What a run ran on."""

import functools
import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

CORE = Path(__file__).parent


@functools.cache
def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@functools.cache
def _version(package: str) -> str:
    """Reading it takes a millisecond, and it stays the same while this process runs."""
    return metadata.version(package)


def host() -> dict[str, Any]:
    """Fingerprint of this machine now; reads files and the clock of the system's load."""
    return {
        "cpu": _cpu(),
        "n_cores": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "torch": _version("torch"),
        "n_threads": 1,
        "load_1min": round(os.getloadavg()[0], 2),
    }


@functools.cache
def code_version() -> str:
    """Hash of every Python file in core: recordings say which code made them."""
    digest = hashlib.sha256()
    for path in sorted(CORE.rglob("*.py")):
        digest.update(path.relative_to(CORE).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
