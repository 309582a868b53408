"""Published models and devices: facts with a source each, read from the files beside this one.

Cells that a row names in `from_memory` were not looked up, and say so on screen. A peak that is not
published is unknown, and no nought.

Checked: parameters against transformers' own models, and against the published totals
(tests/core/test_catalog.py).
"""

import csv
import difflib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from core.architecture import Attention, Experts, Latent, Layer, Mlp, ModelShape
from core.sizes import Bytes

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A published model."""

    slug: str
    name: str
    family: str
    aliases: tuple[str, ...]
    shape: ModelShape
    params_published: int | None  # by `count_convention`
    exact: bool  # whether the op table counts the very same
    count_convention: str
    active_published: int | None
    active_convention: str
    train_tokens: int | None
    source: str
    from_memory: tuple[str, ...]  # columns that were not looked up; `config`: all sizes
    notes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """An accelerator, a phone, a board."""

    slug: str
    name: str
    kind: str  # gpu-datacenter, apple, mobile, …
    aliases: tuple[str, ...]
    memory: Bytes  # as its label says, GB = 10⁹
    usable: Bytes
    usable_source: str
    bandwidth_bytes_s: float
    peak_flops: Mapping[str, float | None]  # dense, by format; None: unknown
    tdp_w: float | None
    link_bytes_s: float | None  # one way, to its neighbours
    source: str
    from_memory: tuple[str, ...]


Found = TypeVar("Found", Model, Device)


@functools.cache
def models() -> dict[str, Model]:
    """All of them by slug, in the file's order. Raises: ValueError naming file, row and column."""
    return {m.slug: m for m in _rows("models.csv", _model)}


@functools.cache
def devices() -> dict[str, Device]:
    """All of them by slug, in the file's order. Raises: ValueError naming file, row and column."""
    return {d.slug: d for d in _rows("devices.csv", _device)}


def find_model(text: str) -> Model:
    """By slug, name or alias; case, spaces, dots and dashes do not matter.

    Raises: LookupError naming near ones.
    """
    return _find(text, models(), "model")


def find_device(text: str) -> Device:
    """As `find_model`. Raises: LookupError naming near ones."""
    return _find(text, devices(), "device")


_TUNED = re.compile(r"[-_ ](instruct|chat|it|base|hf)$", re.IGNORECASE)


def key(text: str) -> str:
    """What names are compared by: small letters and digits."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _find(text: str, among: Mapping[str, Found], what: str) -> Found:
    if text in among:
        return among[text]
    names = _names(what)
    wanted = key(text)
    # As hubs write it: owner before it, and after it for what it was tuned.
    bare = key(_TUNED.sub("", text.rpartition("/")[2].strip()))
    for name in (wanted, bare):
        if name in names:
            return among[names[name]]
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    choices = ", ".join(dict.fromkeys(among[names[n]].name for n in near))
    remedy = f"did you mean {choices}?" if choices else f"there are {len(among)} {what}s"
    raise LookupError(f"{what}={text[:80]!r} is not in the catalogue; {remedy}")


@functools.cache
def _names(what: str) -> dict[str, str]:
    """Compared name -> slug. A name that two would have is nobody's, but for a slug of its own."""
    among = models() if what == "model" else devices()
    owners: dict[str, set[str]] = {}
    for slug, entry in among.items():
        for name in (slug, entry.name, *entry.aliases):
            owners.setdefault(key(name), set()).add(slug)
    return {
        name: next((s for s in slugs if key(s) == name), min(slugs))
        for name, slugs in owners.items()
        if len(slugs) == 1 or any(key(s) == name for s in slugs)
    }


# -- reading ------------------------------------------------------------------------------------


class _Row:
    """A line of a file, whose cells say where they stand when they cannot be read."""

    def __init__(self, file: str, number: int, cells: Mapping[str, str]) -> None:
        self.file, self.number, self.cells = file, number, cells

    def text(self, column: str) -> str:
        value = self.cells.get(column)
        if value is None:
            raise ValueError(f"{self._at(column)} is missing; add the column")
        return value.strip()

    def whole(self, column: str, default: int | None = None) -> int:
        value = self.maybe(column, int)
        if value is None:
            if default is None:
                raise ValueError(f"{self._at(column)} is empty; give a whole number")
            return default
        return int(value)

    def maybe(self, column: str, read: Callable[[str], float]) -> float | int | None:
        text = self.text(column)
        if not text:
            return None
        try:
            value = read(text)
        except ValueError:
            raise ValueError(f"{self._at(column)}={text!r} is no number; give one") from None
        if value < 0:
            raise ValueError(f"{self._at(column)}={text!r} is below 0; give a number from 0")
        return value

    def yes(self, column: str) -> bool:
        return self.whole(column, 0) == 1

    def names(self, column: str) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.text(column).split(";") if name.strip())

    def _at(self, column: str) -> str:
        return f"{self.file}, row {self.number}, {column}"


def _rows(file: str, read: Callable[[_Row], Found]) -> Iterator[Found]:
    with (FOLDER / file).open(encoding="utf-8", newline="") as lines:
        for number, cells in enumerate(csv.DictReader(lines), start=2):
            yield read(_Row(file, number, cells))


def _model(row: _Row) -> Model:
    n = row.maybe("params", int)
    active = row.maybe("active", int)
    tokens = row.maybe("train_tokens", int)
    return Model(
        slug=row.text("slug"),
        name=row.text("name"),
        family=row.text("family"),
        aliases=row.names("aliases"),
        shape=_shape(row),
        params_published=None if n is None else int(n),
        exact=row.text("counted") == "exact",
        count_convention=row.text("count_convention"),
        active_published=None if active is None else int(active),
        active_convention=row.text("active_convention"),
        train_tokens=None if tokens is None else int(tokens),
        source=row.text("source"),
        from_memory=row.names("from_memory"),
        notes=row.text("notes"),
    )


def _shape(row: _Row) -> ModelShape:
    n_layer = row.whole("layers")
    mixers = _pattern(row.text("pattern") or "full", n_layer)
    mlps = _pattern(_SHORT.get(row.text("expert_layers"), row.text("expert_layers")), n_layer)
    kinds = list(zip(mixers, mlps, strict=True))
    made = {kind: _layer(row, *kind) for kind in dict.fromkeys(kinds)}
    return ModelShape(
        vocab_size=row.whole("vocab"),
        d_model=row.whole("hidden"),
        layers=runs([made[kind] for kind in kinds]),
        max_seq_len=row.whole("max_context"),
        norm=row.text("norm"),
        norm_bias=row.yes("norm_bias"),
        positions=row.text("positions"),
        tied=row.yes("tied"),
        head_bias=row.yes("head_bias"),
    )


_SHORT = {"": "dense", "all": "experts"}


def _pattern(text: str, n_layer: int) -> list[str]:
    """`5xsliding,full` over and over; `3xdense,rest experts` once, the rest to the end."""
    found: list[str] = []
    for part in text.split(","):
        if part.startswith("rest "):
            found += [part.removeprefix("rest ")] * (n_layer - len(found))
            return found
        times, _, name = part.rpartition("x") if re.match(r"\d+x", part) else ("1", "", part)
        found += [name] * int(times)
    return (found * (n_layer // len(found) + 1))[:n_layer]


def runs(layers: list[Layer]) -> tuple[tuple[int, Layer], ...]:
    """Layers in order, those that are alike and follow each other written once."""
    found: list[tuple[int, Layer]] = []
    for layer in layers:
        if found and found[-1][1] == layer:
            found[-1] = (found[-1][0] + 1, layer)
        else:
            found.append((1, layer))
    return tuple(found)


def _layer(row: _Row, mixer: str, mlp: str) -> Layer:
    gated, bias = row.yes("gated"), row.yes("mlp_bias")
    channels: Mlp | Experts = Mlp(d_ff=row.whole("ffn"), gated=gated, bias=bias)
    if mlp == "experts":
        channels = Experts(
            n=row.whole("experts"),
            top_k=row.whole("top_k"),
            d_ff=row.whole("expert_ffn"),
            n_shared=row.whole("shared_experts", 0),
            gated=gated,
            bias=bias,
            router_bias=row.yes("router_bias"),
        )
    elif mlp != "dense":
        raise ValueError(
            f"{row.file}, row {row.number}: layer {mlp!r} is neither dense nor experts"
        )
    return Layer(mixer=_mixer(row, mixer), mlp=channels, n_norms=row.whole("n_norms"))


def _mixer(row: _Row, kind: str) -> Attention | Latent:
    if row.whole("kv_lora", 0):
        return Latent(
            n_head=row.whole("heads"),
            q_rank=row.whole("q_lora", 0),
            kv_rank=row.whole("kv_lora"),
            d_rope=row.whole("rope_dim"),
            d_nope=row.whole("nope_dim"),
            d_value=row.whole("value_dim"),
        )
    if kind not in ("full", "sliding", "chunked"):
        raise ValueError(f"{row.file}, row {row.number}: layer {kind!r} is unknown")
    return Attention(
        n_head=row.whole("heads"),
        n_kv_head=row.whole("kv_heads"),
        d_head=row.whole("head_dim"),
        window=0 if kind == "full" else row.whole("window"),
        chunked=kind == "chunked",
        qkv_bias=row.yes("qkv_bias"),
        out_bias=row.yes("out_bias"),
        qk_norm=row.yes("qk_norm"),
        sinks=row.yes("sinks"),
    )


_PEAKS = {
    "bf16": "bf16_dense_tflops",
    "fp8": "fp8_dense_tflops",
    "int8": "int8_dense_tops",
}


def _device(row: _Row) -> Device:
    memory = Bytes.of(float(row.maybe("memory_gb", float) or 0), "GB")
    usable = row.maybe("usable_bytes", float)
    peaks = {name: row.maybe(column, float) for name, column in _PEAKS.items()}
    link = row.maybe("link_gb_s", float)
    return Device(
        slug=row.text("slug"),
        name=row.text("name"),
        kind=row.text("kind"),
        aliases=row.names("aliases"),
        memory=memory,
        usable=memory if usable is None else Bytes(int(usable)),
        usable_source=row.text("usable_source") or "its label, GB taken as 10⁹ bytes",
        bandwidth_bytes_s=float(row.maybe("bandwidth_gb_s", float) or 0) * 1e9,
        peak_flops={name: None if v is None else v * 1e12 for name, v in peaks.items()},
        tdp_w=row.maybe("tdp_w", float),
        link_bytes_s=None if link is None else link * 1e9,
        source=row.text("source"),
        from_memory=row.names("from_memory"),
    )
