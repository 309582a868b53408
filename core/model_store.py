"""Models that visitors describe, kept under names that nobody can guess, so that a link to one
works after a restart. Only the shape is kept, as JSON, and what was said of it.
"""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from core import kept as store
from core.architecture import Attention, Experts, Latent, Layer, Mlp, ModelShape, Recurrent
from core.configs import Imported, Unreadable

NAME = re.compile(r"own-[0-9a-f]{32}")
MAX_BYTES = 4_000_000
_KINDS = {c.__name__: c for c in (Attention, Latent, Recurrent, Mlp, Experts)}


def keep(model: Imported, folder: Path) -> str:
    """Store it; returns its name, which mixes its hash with a secret of this installation.

    Raises: OSError where it cannot be written; Unreadable if it is too large to keep.
    """
    text = json.dumps(to_json(model), sort_keys=True)
    if len(text) > MAX_BYTES:
        raise Unreadable(f"the model's description has {len(text):,} bytes; more than can be kept")
    return store.keep(text, folder, prefix="own-", suffix=".json")


def kept(name: str, folder: Path) -> Imported:
    """Raises: LookupError if it is no name of one, or is no longer kept."""
    if not NAME.fullmatch(name):
        raise LookupError(f"model={name[:40]!r} is not the name of a kept model")
    try:
        return from_json(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as why:
        raise LookupError(f"model={name!r} is no longer kept; give its file again") from why


def to_json(model: Imported) -> dict[str, Any]:
    """As plain JSON."""
    shape = {
        f.name: getattr(model.shape, f.name)
        for f in dataclasses.fields(ModelShape)
        if f.name != "layers"
    }
    shape["layers"] = [[n, _layer_json(layer)] for n, layer in model.shape.layers]
    rest = {
        f.name: getattr(model, f.name) for f in dataclasses.fields(Imported) if f.name != "shape"
    }
    return {**rest, "shape": shape}


def from_json(record: dict[str, Any]) -> Imported:
    """Raises: ValueError, KeyError or TypeError where it is not what `to_json` writes."""
    values = dict(record)
    shape = dict(values.pop("shape"))
    layers = tuple((int(n), _layer(layer)) for n, layer in shape.pop("layers"))
    shape["others"] = tuple((name, n) for name, n in shape["others"])
    for name in ("unknown", "assumed"):
        values[name] = tuple(values[name])
    return Imported(shape=ModelShape(layers=layers, **shape), **values)


def _layer_json(layer: Layer) -> dict[str, Any]:
    def part(value: Any) -> dict[str, Any]:
        return {"kind": type(value).__name__, **dataclasses.asdict(value)}

    return {"mixer": part(layer.mixer), "mlp": part(layer.mlp), "n_norms": layer.n_norms}


def _layer(record: dict[str, Any]) -> Layer:
    def part(value: dict[str, Any]) -> Any:
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in value.items()
        }
        make: Any = _KINDS[values.pop("kind")]
        return make(**values)

    return Layer(
        mixer=part(record["mixer"]), mlp=part(record["mlp"]), n_norms=int(record["n_norms"])
    )
