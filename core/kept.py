"""What visitors give us, kept as files under names that nobody can guess."""

import hashlib
import os
import secrets
from pathlib import Path


def keep(text: str, folder: Path, *, prefix: str = "", suffix: str) -> str:
    """Store it, all or nothing; returns its name, `prefix` and 32 hex digits.

    The name mixes the text's hash with a secret of this installation, so that it gives nothing away
    and the same text has the same name. Raises: OSError where it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = prefix + hashlib.sha256(_secret(folder) + text.encode()).hexdigest()[:32]
    path = folder / f"{name}{suffix}"
    if not path.exists():
        partial = path.with_suffix(f".{secrets.token_hex(4)}")
        partial.write_text(text, encoding="utf-8")
        partial.rename(path)
    return name


def _secret(folder: Path) -> bytes:
    path = folder / "secret"
    try:
        with path.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(secrets.token_bytes(32))
    except FileExistsError:
        pass
    return path.read_bytes()
