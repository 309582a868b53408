"""A live run over HTTP is the run folder, byte for byte, however it is cut and taken up again.

A real server on loopback, and a plain HTTP client.
"""

import base64
import contextlib
import http.client
import itertools
import json
import logging
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from components import runs
from components.stream import routes, stream_url
from core.events import Ended, Event
from core.specs import TrainSpec
from core.trace import ARRAYS, EVENTS, Recorder, Trace

SHIPPED = Path(__file__).resolve().parents[2] / "core" / "recordings" / "circle"
SPEC_ID = TrainSpec().spec_id
DEADLINE_S = 60
NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    runs: Path
    errors: list[logging.LogRecord]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("stream") / "runs"
    errors: list[logging.LogRecord] = []
    noted = logging.Handler(logging.WARNING)
    noted.emit = errors.append
    log = logging.getLogger("uvicorn.error")
    log.addHandler(noted)
    config = uvicorn.Config(
        Starlette(routes=routes()), lifespan="off", ws="none", loop="asyncio", log_config=None
    )
    made = uvicorn.Server(config)
    with pytest.MonkeyPatch.context() as patch, socket.socket() as listening:
        patch.setenv("BOTHWAYS_RUNS", str(folder))
        runs.host.cache_clear()
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=made.run, args=([listening],))
        thread.start()
        wait_for(lambda: made.started)
        yield Server(listening.getsockname()[1], folder, errors)
        made.should_exit = True
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        runs.host().close()
        runs.host.cache_clear()
    log.removeHandler(noted)


@pytest.fixture(autouse=True)
def no_errors(server: Server) -> Iterator[None]:
    """Whatever is asked, the server has nothing to complain of itself."""
    yield
    said = [record.getMessage() for record in server.errors]
    server.errors.clear()
    assert said == []


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


@pytest.fixture
def attempt(server: Server) -> Iterator[str]:
    """The name of a run that nobody has begun; its folder is there."""
    name = f"20260101-000000-{next(NUMBERS):06x}"
    (server.runs / SPEC_ID / name).mkdir(parents=True)
    yield name
    shutil.rmtree(server.runs / SPEC_ID / name, ignore_errors=True)


@contextlib.contextmanager
def get(
    server: Server, path: str, last_event_id: str | None = None
) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    try:
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as response:
            yield response
    finally:
        connection.close()


def watch(
    server: Server, attempt: str, last_event_id: str | None = None
) -> contextlib.AbstractContextManager[http.client.HTTPResponse]:
    return get(server, f"/api/runs/{SPEC_ID}/{attempt}", last_event_id)


@dataclass(frozen=True, slots=True)
class Part:
    """One server-sent event, decoded."""

    id: str
    events: bytes
    arrays_from: int
    arrays: bytes


def parts(response: http.client.HTTPResponse) -> Iterator[Part]:
    """Parts as they come, until the server ends the stream; comments are left out."""
    block: list[str] = []
    for line in response:
        text = line.decode().rstrip("\n")
        if text and not text.startswith(":"):
            block.append(text)
        elif block:
            fields = dict(field.split(": ", 1) for field in block)
            data = json.loads(fields["data"])
            yield Part(
                fields["id"],
                data["events"].encode(),
                data["arrays_from"],
                base64.b64decode(data["arrays"], validate=True),
            )
            block = []


def shipped_events() -> list[Event]:
    return Trace.read(SHIPPED).events


def files(server: Server, attempt: str) -> tuple[bytes, bytes]:
    folder = server.runs / SPEC_ID / attempt
    return (folder / EVENTS).read_bytes(), (folder / ARRAYS).read_bytes()


def copy_shipped(server: Server, attempt: str) -> tuple[bytes, bytes]:
    for name in (EVENTS, ARRAYS):
        shutil.copy(SHIPPED / name, server.runs / SPEC_ID / attempt / name)
    return files(server, attempt)


# -- a run as it goes -----------------------------------------------------------------------------


def test_parts_joined_are_the_folder_while_a_recorder_appends(server: Server, attempt: str):
    """Nothing is lost, doubled or out of place, wherever the reading falls between two writings."""
    events = shipped_events()
    seen = threading.Semaphore(0)

    def write() -> None:
        recorder = Recorder(server.runs / SPEC_ID / attempt)
        for i in range(0, len(events), 7):
            recorder.write(events[i : i + 7])
            if i % 490 == 0:  # now and then let the reader come between
                seen.acquire(timeout=DEADLINE_S)
        recorder.close()

    writer = threading.Thread(target=write)
    writer.start()
    lines, arrays, n_parts = b"", b"", 0
    with watch(server, attempt) as response:
        for part in parts(response):
            assert part.arrays_from == len(arrays)
            lines += part.events
            arrays += part.arrays
            n_parts += 1
            seen.release()
    writer.join(DEADLINE_S)
    assert (lines, arrays) == files(server, attempt)
    assert n_parts > 3


def test_every_part_can_be_read_when_it_comes(server: Server, attempt: str):
    """Whole lines only, and the bytes of every array that they name are there."""
    events = shipped_events()
    recorder = Recorder(server.runs / SPEC_ID / attempt)
    recorder.write(events[:1])
    lines, arrays, written = b"", b"", 1
    with watch(server, attempt) as response:
        for part in parts(response):
            lines += part.events
            arrays += part.arrays
            assert lines.endswith(b"\n")
            assert len(Trace.parse(lines, arrays).events) == lines.count(b"\n")
            recorder.write(events[written : written + 400])
            written += 400
    recorder.close()
    assert len(Trace.parse(lines, arrays).events) == len(events)


def test_an_id_is_how_far_both_files_were_read(server: Server, attempt: str):
    events = shipped_events()
    recorder = Recorder(server.runs / SPEC_ID / attempt)
    recorder.write(events[:10])
    n_lines = n_arrays = 0
    written = 10
    with watch(server, attempt) as response:
        for part in parts(response):
            n_lines += len(part.events)
            n_arrays += len(part.arrays)
            assert part.id == f"{n_lines}-{n_arrays}"
            recorder.write(events[written : written + 500])
            written += 500
    recorder.close()


def test_the_stream_ends_with_the_line_that_ends_the_run(server: Server, attempt: str):
    copy_shipped(server, attempt)
    with watch(server, attempt) as response:
        lines = b"".join(part.events for part in parts(response)).splitlines()
        assert response.read() == b""
    assert [json.loads(line)["type"] for line in lines].count("Ended") == 1
    assert json.loads(lines[-1])["type"] == "Ended"


def test_half_a_line_waits_for_its_other_half(server: Server, attempt: str):
    lines = (SHIPPED / EVENTS).read_bytes().splitlines(keepends=True)
    folder = server.runs / SPEC_ID / attempt
    with (folder / EVENTS).open("ab", buffering=0) as file, watch(server, attempt) as response:
        file.write(lines[0] + lines[3][:20])
        stream = parts(response)
        assert next(stream).events == lines[0]
        file.write(lines[3][20:])
        assert next(stream).events == lines[3]


def test_a_run_that_waits_in_line_is_streamed_once_it_begins(server: Server, attempt: str):
    with watch(server, attempt) as response:
        assert response.status == 200
        recorder = Recorder(server.runs / SPEC_ID / attempt)
        recorder.write(shipped_events()[:1])
        recorder.close()
        assert next(parts(response)).events == files(server, attempt)[0]


def test_a_run_whose_folder_goes_ends_its_stream(server: Server, attempt: str):
    with watch(server, attempt) as response:
        shutil.rmtree(server.runs / SPEC_ID / attempt)
        assert list(parts(response)) == []


def test_nobody_keeps_what_is_streamed(server: Server, attempt: str):
    """No cache stores it, and no proxy gathers it before it passes it on."""
    copy_shipped(server, attempt)
    with watch(server, attempt) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Accel-Buffering"] == "no"
        response.read()


def test_the_address_that_a_page_is_given_leads_here(server: Server, attempt: str):
    copy_shipped(server, attempt)
    address = stream_url(SPEC_ID, attempt)
    assert address.startswith("./")
    with get(server, address[1:]) as response:
        assert response.status == 200
        assert b'{\\"type\\":\\"Started\\"' in response.read()


# -- taken up again -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_lines", [1, 2, 1000, 2792])
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_a_lost_connection_goes_on_from_its_last_id(
    server: Server, attempt: str, n_lines: int, share: float
):
    lines, arrays = copy_shipped(server, attempt)
    events_from = len(b"".join(lines.splitlines(keepends=True)[:n_lines]))
    arrays_from = int(len(arrays) * share)
    with watch(server, attempt, f"{events_from}-{arrays_from}") as response:
        (part,) = parts(response)
    assert part.events == lines[events_from:]
    assert part.arrays_from == arrays_from
    assert part.arrays == arrays[arrays_from:]


def test_a_live_run_of_which_all_was_seen_goes_on_with_what_is_new(server: Server, attempt: str):
    events = shipped_events()
    recorder = Recorder(server.runs / SPEC_ID / attempt)
    recorder.write(events[:100])
    seen = [len(b) for b in files(server, attempt)]
    with watch(server, attempt, f"{seen[0]}-{seen[1]}") as response:
        assert response.status == 200
        recorder.write(events[100:150])
        part = next(parts(response))
    recorder.close()
    lines, arrays = files(server, attempt)
    assert (part.events, part.arrays) == (lines[seen[0] :], arrays[seen[1] :])


def test_a_browser_that_has_seen_the_end_is_told_not_to_come_back(server: Server, attempt: str):
    lines, arrays = copy_shipped(server, attempt)
    with watch(server, attempt, f"{len(lines)}-{len(arrays)}") as response:
        assert response.status == 204
        assert response.read() == b""


def test_an_end_with_a_long_message_is_an_end_too(server: Server, attempt: str):
    recorder = Recorder(server.runs / SPEC_ID / attempt)
    end = Ended(status="failed", message="x" * 10_000, n_steps=0, wall_s=0, cpu_s=0)
    recorder.write([*shipped_events()[:3], end])
    recorder.close()
    lines, arrays = files(server, attempt)
    with watch(server, attempt, f"{len(lines)}-{len(arrays)}") as response:
        assert response.status == 204


@pytest.mark.parametrize(
    "last_event_id",
    ["", "12", "-", "1-", "a-b", "-1-0", "1.5-2", "1-2-3", "0x10-0", "9" * 5000 + "-0", "1-0;"],
)
def test_an_id_that_is_none_of_ours_begins_at_the_beginning(
    server: Server, attempt: str, last_event_id: str
):
    lines, arrays = copy_shipped(server, attempt)
    with watch(server, attempt, last_event_id) as response:
        assert response.status == 200
        (part,) = parts(response)
    assert (part.events, part.arrays) == (lines, arrays)


@pytest.mark.parametrize("last_event_id", [f"{10**11}-0", f"0-{10**11}", f"1-{2**63}"])
def test_an_id_beyond_all_files_breaks_nothing(server: Server, attempt: str, last_event_id: str):
    copy_shipped(server, attempt)
    with watch(server, attempt, last_event_id) as response:
        response.read()
        assert response.status in (200, 204)


# -- what is no run -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "0123456789abcdef/20260101-000000-aaaaaa",  # well-formed, and not kept
        "0123456789ABCDEF/20260101-000000-aaaaaa",
        "0123456789abcde/20260101-000000-aaaaaa",
        "0123456789abcdef0/20260101-000000-aaaaaa",
        "0123456789abcdef/latest",
        "0123456789abcdef/20260101-000000-AAAAAA",
        "0123456789abcdef/20260101-000000-aaaaaa%0A",
        "0123456789abcdef%00/20260101-000000-aaaaaa",
        "../secret",
        "..%2Fsecret",
        "%2e%2e/secret",
        "..%2F..%2Fsecret/x",
        "0123456789abcdef/..%2F..%2Fsecret",
        "0123456789abcdef/..",
        "0123456789abcdef/%2e%2e%2f%2e%2e%2fsecret",
        "%2Fetc/passwd",
        "0123456789abcdef/",
        "",
    ],
)
def test_what_is_no_run_is_not_found(server: Server, path: str):
    secret = server.runs.parent / "secret"
    secret.mkdir(parents=True, exist_ok=True)
    (secret / EVENTS).write_text('{"type":"Ended","secret":1}\n')
    (server.runs / "0123456789abcdef").mkdir(parents=True, exist_ok=True)
    with get(server, f"/api/runs/{path}") as response:
        assert response.status == 404
        assert b"secret" not in response.read()


def test_a_run_is_read_only(server: Server, attempt: str):
    before = copy_shipped(server, attempt)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    for method in ("POST", "PUT", "DELETE"):
        connection.request(method, f"/api/runs/{SPEC_ID}/{attempt}", body=b"{}")
        response = connection.getresponse()
        response.read()
        assert response.status == 405
    connection.close()
    assert files(server, attempt) == before
