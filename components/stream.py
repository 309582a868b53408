"""Live runs over HTTP: a run folder's new bytes as server-sent events.

A message carries whole event lines and the array bytes they may name, exactly as they stand in the
run folder, so that the browser reads live and shipped runs with the same code. Its id is how far
both files were read; a browser that lost its connection goes on from there.
"""

import asyncio
import base64
import contextlib
import json
import re
import signal
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import FrameType
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from components.runs import host
from core.specimens import runs_folder
from core.trace import ARRAYS, EVENTS
from core.worker_host import ATTEMPT

EVERY_S = 1 / 30
PATH = "/api/runs/{spec_id}/{attempt}"
_SPEC_ID = re.compile(r"[0-9a-f]{16}")
_LAST_EVENT_ID = re.compile(r"([0-9]{1,12})-([0-9]{1,12})")  # no file is longer
_closing = threading.Event()  # the server was asked to end


def stream_url(spec_id: str, attempt: str) -> str:
    """Relative to the page's base, so that it holds behind a path prefix."""
    return "." + PATH.format(spec_id=spec_id, attempt=attempt)


async def _stream(request: Request) -> Response:
    spec_id, attempt = request.path_params["spec_id"], request.path_params["attempt"]
    if not (_SPEC_ID.fullmatch(spec_id) and ATTEMPT.fullmatch(attempt)):
        return Response("no such run", status_code=404)
    folder = runs_folder() / spec_id / attempt
    if not folder.is_dir():
        return Response("no such run", status_code=404)
    seen = _LAST_EVENT_ID.fullmatch(request.headers.get("last-event-id", "0-0"))
    events_from, arrays_from = (int(n) for n in seen.groups()) if seen else (0, 0)
    if events_from and _ended(folder, events_from):
        return Response(status_code=204)  # tells the browser not to come back
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    parts = _parts(request, folder, attempt, events_from, arrays_from)
    return StreamingResponse(parts, media_type="text/event-stream", headers=headers)


async def _parts(
    request: Request, folder: Path, attempt: str, events_from: int, arrays_from: int
) -> AsyncIterator[bytes]:
    silent = 0
    while not _closing.is_set() and not await request.is_disconnected():
        host().touch(attempt)
        lines = _tail(folder / EVENTS, events_from)
        lines = lines[: lines.rfind(b"\n") + 1]
        if lines:
            # Read after the lines: an array's bytes are in the file before its line is.
            arrays = _tail(folder / ARRAYS, arrays_from)
            events_from += len(lines)
            message = {
                "events": lines.decode(),
                "arrays_from": arrays_from,
                "arrays": base64.b64encode(arrays).decode(),
            }
            arrays_from += len(arrays)
            data = json.dumps(message, separators=(",", ":"))
            yield f"id: {events_from}-{arrays_from}\ndata: {data}\n\n".encode()
            silent = 0
            if b'{"type":"Ended"' in lines:
                return
        else:
            silent += 1
            if silent % 450 == 0:  # every 15 s: proxies close silent connections
                yield b": still here\n\n"
            if not folder.is_dir():
                return
        await asyncio.sleep(EVERY_S)


def _tail(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read()
    except FileNotFoundError:
        return b""


def _ended(folder: Path, events_from: int) -> bool:
    text = _tail(folder / EVENTS, 0)
    last = text.rstrip(b"\n").rsplit(b"\n", 1)[-1]
    return len(text) <= events_from and last.startswith(b'{"type":"Ended"')


def routes() -> list[Route]:
    return [Route(PATH, _stream)]


@contextlib.asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[None]:
    """From the server's start to its end, which must not wait for a run that somebody watches.

    uvicorn ends once every open response has; ours end at the signal. It dies of the same signal
    afterwards, without running what `atexit` holds, so the worker is ended here.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _closing_before(signal.getsignal(number)))
    yield
    host().close()


def _closing_before(handler: Any) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        _closing.set()
        if callable(handler):
            handler(number, frame)

    return handle
