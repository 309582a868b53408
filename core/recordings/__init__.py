"""Real runs shipped with the code, for the first paint: run folders made by `make recordings`."""

import functools
import json
from pathlib import Path

from core.specs import RunSpec
from core.trace import EVENTS

FOLDER = Path(__file__).parent


@functools.cache
def _by_spec() -> dict[str, Path]:
    """spec_id -> run folder, told by each recording's first event."""
    found = {}
    for path in sorted(FOLDER.glob(f"*/{EVENTS}")):
        with path.open("rb") as file:
            found[json.loads(file.readline())["spec_id"]] = path.parent
    return found


def shipped(spec: RunSpec) -> Path | None:
    """The run folder of a shipped recording of exactly this spec, if there is one."""
    return _by_spec().get(spec.spec_id)
