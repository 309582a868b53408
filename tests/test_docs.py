"""The documents tell the truth: what they name is there."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("core", "components", "pages")
# Split, so that this file does not name them either.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
    )
]


def own_files() -> list[Path]:
    """Files that are tracked or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:  # an unpacked archive
        paths = [p for p in ROOT.rglob("*") if not {".git", ".venv", "__pycache__"} & {*p.parts}]
    return sorted(p for p in set(paths) if p.is_file())


def documents() -> list[Path]:
    return [p for p in own_files() if p.suffix == ".md"]


def _id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# -- what a document says -----------------------------------------------------------------------


def fences(text: str, language: str) -> list[str]:
    """Contents of the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def tree_paths(tree: str) -> Iterator[str]:
    """Paths of an annotated tree: indented names, two spaces, what they are.

    A line may hold several names; a name that ends in a slash holds the lines indented below it.
    """
    folders: list[str] = []
    for line in filter(str.strip, tree.splitlines()):
        depth = (len(line) - len(line.lstrip())) // 2
        del folders[depth:]
        assert len(folders) == depth, f"{line!r} is indented under something that is no folder"
        names = line.strip().split("  ")[0].split()
        yield from ("".join(folders) + name for name in names)
        if len(names) == 1 and names[0].endswith("/"):
            folders.append(names[0])


def commands(text: str) -> set[str]:
    """Targets of the make commands that stand in code, inline or fenced."""
    code = "\n".join([*re.findall(r"`([^`\n]+)`", text), *fences(text, "sh")])
    return set(re.findall(r"(?:^|\s)make ([a-z][a-z-]*)", code, re.MULTILINE))


def links(text: str) -> Iterator[str]:
    """Relative targets of links and images, anchors cut off."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(
        r'(?:src|srcset|href)="([^"]+)"', text
    )
    for target in found:
        if not re.match(r"[a-z]+:|#", target):
            yield target.split("#")[0]


def variables(table: str) -> set[str]:
    """Names in the first column of the table of environment variables."""
    section = table.split("## Environment variables")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))


def variables_read(python: str) -> set[str]:
    """Environment variables that a Python text reads, or names as ours."""
    read = re.findall(
        r"(?:environ\.get\(|environ\[|getenv\()\s*[\"'](\w+)[\"'](?!\]\s*=[^=])", python
    )
    return {*read, *re.findall(r"\bBOTHWAYS_\w+", python)}


# -- and whether it is so -----------------------------------------------------------------------


@pytest.mark.parametrize("document", documents(), ids=_id)
def test_every_make_command_is_in_the_makefile(document: Path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert commands(document.read_text()) - targets == set()


def test_the_readme_names_the_two_commands():
    assert {"run", "test"} <= commands((ROOT / "README.md").read_text())


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md"])
def test_the_paths_of_the_tree_exist(name: str):
    (tree,) = fences((ROOT / name).read_text(), "tree")
    paths = list(tree_paths(tree))
    assert len(paths) > 5
    assert [p for p in paths if not (ROOT / p).exists()] == []


def test_the_architecture_names_every_file_of_the_layers():
    (tree,) = fences((ROOT / "ARCHITECTURE.md").read_text(), "tree")
    files = {_id(p) for layer in LAYERS for p in (ROOT / layer).glob("*.py")}
    assert sorted(f for f in files - set(tree_paths(tree)) if "/_" not in f) == []


@pytest.mark.parametrize("document", documents(), ids=_id)
def test_every_link_and_image_leads_somewhere(document: Path):
    text = document.read_text()
    assert [t for t in links(text) if not (document.parent / t).exists()] == []


def test_the_environment_variables_are_those_that_are_read():
    """In the product, in the tests' tools, and in the Makefile's `NAME ?=`."""
    python = [p for p in own_files() if p.suffix == ".py" and p != Path(__file__)]
    made = set(re.findall(r"^(\w+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE))
    read = made.union(*(variables_read(p.read_text()) for p in python))
    assert variables((ROOT / "README.md").read_text()) == read


def test_no_file_names_a_host_of_a_package_registry():
    """Which mirror a machine installs from is that machine's business."""
    named = [
        (_id(p), host)
        for p in own_files()
        for host in REGISTRY_HOSTS
        if host.encode() in p.read_bytes()
    ]
    assert named == []


def test_the_readers_of_documents_find_what_they_look_for():
    """Each reader, on a text that holds what it must find: finding nothing then means something."""
    assert commands("`make nosuch`\n```sh\nmake run  # x\n```\nto make sense") == {"nosuch", "run"}
    assert list(links("[a](b.md#c) ![d](e.png) [f](https://g)")) == ["b.md", "e.png"]
    assert list(links('<img src="h.png">')) == ["h.png"]
    tree = "a.py b.py  both\nc/  folder\n  d/  inner\n    e.py  deep\n  f.py  after\n"
    assert list(tree_paths(tree)) == ["a.py", "b.py", "c/", "c/d/", "c/d/e.py", "c/f.py"]
    assert variables_read('environ.get("A", 1); os.environ["B"] == 1') == {"A", "B"}
    assert variables_read('os.environ["C"] = "set"') == set()
    assert variables("## Environment variables\n| `A` | x |\n\n## Next\n| `B` | y |") == {"A"}
