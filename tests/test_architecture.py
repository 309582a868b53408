"""The layers hold: what may import what, and where a widget or a figure may be made.

A rule is a function from a file's place and text to its breaches. Each is tried on a text that
breaks it too, so that a rule that finds nothing is known to look.
"""

import ast
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("core", "components", "pages")  # each may import itself and those before it
FORMULAS = (
    "specs", "shapes", "units", "optimizers", "ops", "transformer", "memory", "quantities",
    "compare", "drawing", "architecture", "sizes", "counts", "columns", "step_columns",
    "work_columns", "states", "activations", "cache", "blocks", "quantised", "footprints", "fits",
    "utilisation", "roofline", "speculation", "products", "ladder", "device_times",
)  # fmt: skip
WORLD = {
    "os", "sys", "time", "datetime", "io", "pathlib", "glob", "shutil", "tempfile", "socket",
    "subprocess", "random", "secrets", "urllib", "requests",
}  # fmt: skip
WIDGETS = {
    "slider", "select_slider", "segmented_control", "pills", "number_input", "toggle", "checkbox",
    "selectbox", "multiselect", "radio", "text_input", "text_area", "color_picker", "date_input",
}  # fmt: skip

SETTINGS = tuple(  # where widgets may be made
    f"components/{name}.py" for name in ("settings", "asking", "sizing", "pacing")
)

Rule = Callable[[str, str], list[str]]


def sources() -> dict[str, str]:
    """Place and text of every Python file of the product."""
    paths = [ROOT / "app.py", *(p for layer in LAYERS for p in (ROOT / layer).rglob("*.py"))]
    return {p.relative_to(ROOT).as_posix(): p.read_text() for p in paths if p.exists()}


def imports(place: str, text: str) -> Iterator[str]:
    """Dotted names of all that a file imports, anywhere in it; of `from a import b` a and a.b."""
    package = place.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*parts, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _top(name: str) -> str:
    return name.split(".")[0]


def _layer(place: str) -> str:
    return place.split("/")[0]


def _calls(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, name, what it is a name of) of every call, as in (3, "slider", "st")."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node.lineno, node.func.attr, ast.unparse(node.func.value)
            elif isinstance(node.func, ast.Name):
                yield node.lineno, node.func.id, ""


# -- the rules ----------------------------------------------------------------------------------


def imports_point_down(place: str, text: str) -> list[str]:
    """pages -> components -> core; core knows neither streamlit nor plotly."""
    layer = _layer(place)
    if layer not in LAYERS:
        return []
    above = set(LAYERS[LAYERS.index(layer) + 1 :])
    if layer == "core":
        above |= {"streamlit", "plotly"}
    return [f"{place} imports {name}" for name in imports(place, text) if _top(name) in above]


def torch_stays_in_the_engine(place: str, text: str) -> list[str]:
    if place.startswith("core/engine/") or place == "core/worker.py":
        return []
    return [f"{place} imports {name}" for name in imports(place, text) if _top(name) == "torch"]


def pages_are_apart(place: str, text: str) -> list[str]:
    """No page imports a page: what two need goes to components."""
    if _layer(place) != "pages":
        return []
    return [f"{place} imports {name}" for name in imports(place, text) if _top(name) == "pages"]


def widgets_stand_in_settings(place: str, text: str) -> list[str]:
    """The settings' widgets and their keys are named in these files alone."""
    if place in SETTINGS or _layer(place) == "core":
        return []
    made = [f"{place}:{line} makes a {name}" for line, name, of in _calls(text) if name in WIDGETS]
    taken = [
        f"{place} imports {name}"
        for name in imports(place, text)
        if _top(name) == "streamlit" and name.split(".")[-1] in WIDGETS
    ]
    return made + taken


def figures_are_made_in_charts(place: str, text: str) -> list[str]:
    if place.startswith("components/charts/"):
        return []
    made = [f"{place}:{line} makes a {name}" for line, name, _ in _calls(text) if name == "Figure"]
    short_cuts = ("plotly.express", "plotly.figure_factory", "plotly.subplots")
    return made + [f"{place} imports {name}" for name in imports(place, text) if name in short_cuts]


def formulas_are_pure(place: str, text: str) -> list[str]:
    """No clock, no environment, no file, no chance; and of core only what has none either."""
    if place not in {f"core/{name}.py" for name in FORMULAS}:
        return []
    pure = {"core", *(f"core.{name}" for name in FORMULAS)}
    touched = [
        f"{place} imports {name}"
        for name in imports(place, text)
        if _top(name) in WORLD
        or (_top(name) == "core" and ".".join(name.split(".")[:2]) not in pure)
    ]
    opened = [f"{place}:{line} opens a file" for line, name, _ in _calls(text) if name == "open"]
    return touched + opened


RULES: dict[Rule, list[tuple[str, str]]] = {  # with texts that break them
    imports_point_down: [
        ("core/a.py", "import streamlit as st"),
        ("core/a.py", "def f():\n    from plotly import graph_objects"),
        ("core/engine/a.py", "from components.theme import colour"),
        ("components/a.py", "import pages.home"),
        ("core/a.py", "from ..components import theme"),
    ],
    torch_stays_in_the_engine: [
        ("components/runs.py", "import torch.nn"),
        ("core/memory.py", "def f():\n    from torch import Tensor"),
        ("app.py", "import torch"),
    ],
    pages_are_apart: [("pages/a.py", "from pages.b import f"), ("pages/a.py", "from . import b")],
    widgets_stand_in_settings: [
        ("pages/a.py", "import streamlit as st\nst.sidebar.slider('x', 0, 1)"),
        ("components/claims.py", "with left: left.toggle('y')"),
        ("pages/a.py", "from streamlit import number_input"),
    ],
    figures_are_made_in_charts: [
        ("pages/a.py", "import plotly.graph_objects as go\ngo.Figure()"),
        ("components/theme.py", "from plotly.graph_objects import Figure\nFigure(data=[])"),
        ("components/runs.py", "import plotly.express as px"),
    ],
    formulas_are_pure: [
        ("core/memory.py", "import os"),
        ("core/ops.py", "from time import perf_counter"),
        ("core/specs.py", "import os.path"),
        ("core/memory.py", "from core import machines"),
        ("core/quantities.py", "text = open('q.csv').read()"),
    ],
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_product_keeps(rule: Rule):
    assert [breach for place, text in sources().items() for breach in rule(place, text)] == []


@pytest.mark.parametrize(
    ("rule", "place", "text"),
    [(rule, *broken) for rule, texts in RULES.items() for broken in texts],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_breach_is_found_by(rule: Rule, place: str, text: str):
    assert rule(place, text)


def test_a_text_that_keeps_every_rule_breaks_none():
    """The rules do not object to what the layers are for."""
    kept = {
        "core/engine/step.py": "import torch\nfrom core.ops import Op",
        "core/memory.py": "import math\nfrom core.ops import Op",
        "components/settings.py": "import streamlit as st\nst.slider('x', 0, 1)",
        "components/charts/loss.py": "import plotly.graph_objects as go\ngo.Figure()",
        "pages/training.py": "import streamlit as st\nfrom components import claims\nst.title('x')",
    }
    assert [b for rule in RULES for place, text in kept.items() for b in rule(place, text)] == []


def test_the_formulas_are_there():
    assert [f for f in FORMULAS if not (ROOT / "core" / f"{f}.py").exists()] == []


# -- the web process ----------------------------------------------------------------------------


def web_modules() -> list[str]:
    """Every module of ours that the web process imports, but for the scripts Streamlit runs."""
    own = {
        place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for place in sources()
        if _layer(place) == "components" and place != "components/shell.py"
    }
    named = {
        name
        for place, text in sources().items()
        if _layer(place) != "core"
        for name in imports(place, text)
        if _top(name) in ("core", "components") and name != "components.shell"
    }
    return sorted(own | {name for name in named if _is_module(name)})


def _is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_the_web_process_never_loads_torch():
    """Importing all that the pages and the shell import, in a fresh interpreter, leaves it out."""
    assert importlib.util.find_spec("torch"), "torch is not installed, so this would prove nothing"
    modules = web_modules()
    assert "core.worker_host" in modules
    program = (
        "import importlib, json, sys\n"
        "for name in json.loads(sys.argv[1]): importlib.import_module(name)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(modules)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False"]
