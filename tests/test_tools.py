"""The tests find a browser and a node, or say what is missing."""

import os
from pathlib import Path

import pytest

from tests.browser import chromium, node


def program(path: Path, says: str = "") -> Path:
    """An executable that prints a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH, with a sh for scripts to run in."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    return tmp_path


def test_the_named_browser_comes_before_any_other(only: Path, monkeypatch: pytest.MonkeyPatch):
    program(only / "chromium")
    mine = program(only / "mine" / "browser")
    monkeypatch.setenv("CHROMIUM", str(mine))
    assert chromium.find() == str(mine)


def test_a_named_browser_that_cannot_run_is_an_error(only: Path, monkeypatch: pytest.MonkeyPatch):
    program(only / "chromium")
    monkeypatch.setenv("CHROMIUM", str(only / "nosuch"))
    with pytest.raises(RuntimeError, match=r"CHROMIUM='.*nosuch' is not a program"):
        chromium.find()


def test_another_name_of_the_browser_on_the_path_will_do(only: Path):
    chrome = program(only / "google-chrome")
    assert chromium.find() == str(chrome)


def test_root_installs_a_missing_browser(only: Path, monkeypatch: pytest.MonkeyPatch):
    """apt-get is asked to update, then to install; what it put on PATH is found."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made, asked = only / "chromium", only / "asked"
    program(
        only / "apt-get",
        f'echo "$@" >> {asked}\n'
        f'[ "$1" = update ] || {{ echo "#!/bin/sh" > {made}; /bin/chmod +x {made}; }}',
    )
    assert chromium.find() == str(made)
    update, install = asked.read_text().splitlines()
    assert update == "update"
    assert install.startswith("install -y") and " chromium" in install


def test_who_may_not_install_is_told_what_to_install(only: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(only / "apt-get", "exit 1")
    with pytest.raises(RuntimeError, match="install Debian's package chromium"):
        chromium.find()


def test_a_new_enough_node_on_the_path_is_taken(only: Path):
    mine = program(only / "node", "echo v22.1.0")
    assert node.find() == str(mine)


def test_an_old_node_gives_way_to_the_one_playwright_carries(only: Path):
    program(only / "node", "echo v18.19.0")
    assert Path(node.find()).parent.name == "driver"


def test_no_node_at_all_is_an_error(only: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(node, "_carried_by_playwright", lambda: None)
    with pytest.raises(RuntimeError, match="No node of version 20 or newer"):
        node.find()
