"""Weights of models that answer, under the names of `core.engine.models.Transformer`.

Shape suffixes: N rows (outputs), D columns (inputs), K blocks in a row.
"""

import contextlib
import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from core import pretrained
from core.engine.models import Transformer
from core.pretrained import PRETRAINED, WEIGHTS, Gguf, Stored, Unavailable, known, models_folder
from core.shapes import TransformerShape

CACHE_LAYOUT = 1  # one more whenever the same file would give other tensors
_ALIGNMENT = 64  # bytes: a cache line, and more than any vector load asks for

Weights = dict[str, torch.Tensor]


def load(model: str) -> tuple[TransformerShape, Weights]:
    """Shape and float32 weights of a model of any kind (`core.pretrained`), in the order of
    `Transformer(shape).state_dict()`.

    A published model's are kept in float32 beside its file the first time and mapped into memory
    from then on: processes share them, and whoever writes into one has a copy of its own.

    Raises: Unavailable.
    """
    shape = pretrained.shape_of(model)
    if model in PRETRAINED:
        return shape, _published(model, shape)
    path = pretrained.run_folder(model) / WEIGHTS
    try:
        found = load_file(path)
    except FileNotFoundError:
        raise Unavailable(f"{model!r} kept no weights; train it again") from None
    except (OSError, SafetensorError) as why:
        raise Unavailable(f"{path} cannot be read ({why}); train {model!r} again") from None
    state = Transformer(shape).state_dict()
    return shape, _in_order(found, {name: tuple(t.shape) for name, t in state.items()}, path)


# -- a published model's file -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawBlocks:
    """A matrix as the file has it: weights of a row in blocks that share a scale.

    Q4_1, 20 bytes for 32 weights: scale and least value in float16, then weights i and i + 16 as
    the low and high half of byte i. Q8_0, 34 bytes for 32: scale in float16, then a signed byte
    each. F32: no blocks. Source: ggml, `ggml-common.h`. Checked: the package gguf.
    """

    type: str
    raw: torch.Tensor  # uint8 (N, bytes of a row); a view of the file where one tensor is it all
    shape: tuple[int, ...]  # (N, D); of a norm's weight (D,)
    order: torch.Tensor | None = None  # row i of the model is the file's row order[i]; None: i

    def in_order(self) -> torch.Tensor:
        """`raw` with the model's order of rows."""
        return self.raw if self.order is None else self.raw[self.order]

    def dense(self) -> torch.Tensor:
        """The model's weight in float32, shape `shape`."""
        return _DEQUANTISE[self.type](self.in_order()).view(self.shape)


def _q4_1(raw: torch.Tensor) -> torch.Tensor:
    blocks_NK20 = raw.unflatten(1, (-1, 20))
    scale, least = blocks_NK20[..., :4].contiguous().view(torch.float16).float().split(1, dim=-1)
    pairs = blocks_NK20[..., 4:]
    return torch.cat([pairs & 15, pairs >> 4], dim=-1).float().mul_(scale).add_(least)


def _q8_0(raw: torch.Tensor) -> torch.Tensor:
    blocks_NK34 = raw.unflatten(1, (-1, 34))
    scale = blocks_NK34[..., :2].contiguous().view(torch.float16).float()
    return blocks_NK34[..., 2:].contiguous().view(torch.int8).float().mul_(scale)


_DEQUANTISE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "F32": lambda raw: raw.contiguous().view(torch.float32),
    "F16": lambda raw: raw.contiguous().view(torch.float16).float(),
    "Q4_1": _q4_1,
    "Q8_0": _q8_0,
}


def blocks_of(model: str) -> dict[str, RawBlocks]:
    """Every weight of a published model as its file has it; the file is mapped, not read.

    Queries, keys and values are one matrix here and three in the file: their rows are joined.

    Raises: Unavailable.
    """
    gguf = pretrained.gguf_of(model)
    data = np.memmap(gguf.path, np.uint8, mode="c")  # "c": torch warns of what cannot be written
    file = torch.from_numpy(data)
    return {
        name: _joined(gguf, file, sources) for name, sources in _sources(pretrained.shape_of(model))
    }


Source = tuple[str, int]  # tensor of the file; heads whose channels it has in pairs, 0: none


def _sources(shape: TransformerShape) -> Iterator[tuple[str, list[Source]]]:
    """(weight, what of the file it is made of), in the order of the model's state."""
    yield "embed.tokens.weight", [("token_embd", 0)]
    for i in range(shape.n_layer):
        ours, theirs = f"blocks.{i}", f"blk.{i}"
        yield f"{ours}.attn.norm.weight", [(f"{theirs}.attn_norm", 0)]
        queries, keys = (f"{theirs}.attn_q", shape.n_head), (f"{theirs}.attn_k", shape.n_kv_head)
        yield f"{ours}.attn.qkv.weight", [queries, keys, (f"{theirs}.attn_v", 0)]
        yield f"{ours}.attn.out.weight", [(f"{theirs}.attn_output", 0)]
        yield f"{ours}.mlp.norm.weight", [(f"{theirs}.ffn_norm", 0)]
        for part in ("gate", "up", "down"):
            yield f"{ours}.mlp.{part}.weight", [(f"{theirs}.ffn_{part}", 0)]
    yield "norm.weight", [("output_norm", 0)]
    if not shape.tied:
        yield "head.weight", [("output", 0)]


def _joined(gguf: Gguf, file: torch.Tensor, sources: list[Source]) -> RawBlocks:
    """One weight from the rows of one or several tensors of the file."""
    try:
        found = [gguf.tensors[f"{name}.weight"] for name, _ in sources]
    except KeyError as why:
        raise Unavailable(f"{gguf.path} has no tensor {why}; fetch it again") from None
    if len({(stored.type, stored.shape[1:]) for stored in found}) > 1:
        raise Unavailable(f"{gguf.path} has {sources} in different formats or widths")
    first = found[0]
    raws = [
        file[stored.offset : stored.offset + stored.n_bytes].view(-1, _row_bytes(stored))
        for stored in found
    ]
    n_rows = [len(raw) for raw in raws]
    order = [_untangled(n, heads) for n, (_, heads) in zip(n_rows, sources, strict=True)]
    starts = [sum(n_rows[:i]) for i in range(len(n_rows))]
    return RawBlocks(
        type=first.type,
        raw=torch.cat(raws) if len(raws) > 1 else raws[0],
        shape=(sum(n_rows), first.shape[1]) if len(first.shape) > 1 else first.shape,
        order=torch.cat([start + rows for start, rows in zip(starts, order, strict=True)])
        if any(heads for _, heads in sources)
        else None,
    )


def _row_bytes(stored: Stored) -> int:
    return stored.n_bytes // (stored.shape[0] if len(stored.shape) > 1 else 1)


def _untangled(n_rows: int, n_head: int) -> torch.Tensor:
    """Rows of the file in the order of a model that turns channels r and r + d_head / 2 together:
    the file has each such pair side by side.

    Source: `permute` in llama.cpp's conversion of Llama. Checked: without it the logits are others
    (tests/core/test_weights.py).
    """
    rows = torch.arange(n_rows)
    return rows.view(n_head, -1, 2).transpose(1, 2).flatten() if n_head else rows


# -- in float32, kept ---------------------------------------------------------------------------


def _published(model: str, shape: TransformerShape) -> Weights:
    """Its weights, mapped from the file that keeps them; the first time that file is made."""
    cache = models_folder() / f"{model}-{known(model).sha256[:8]}-fp32.{CACHE_LAYOUT}.safetensors"
    blocks = blocks_of(model)
    shapes = {name: found.shape for name, found in blocks.items()}
    with contextlib.suppress(OSError, SafetensorError, Unavailable):
        return _in_order(load_file(cache), shapes, cache)
    pretrained.require_unchanged(pretrained.located(model), known(model))
    with contextlib.suppress(OSError, SafetensorError, Unavailable):
        cache.parent.mkdir(parents=True, exist_ok=True)
        _write(cache, shapes, (found.dense() for found in blocks.values()))
        return _in_order(load_file(cache), shapes, cache)
    # The disk is full, or the folder is not ours: this process has its own.
    return {name: found.dense() for name, found in blocks.items()}


def _in_order(found: Weights, shapes: dict[str, tuple[int, ...]], path: Path) -> Weights:
    """In the order of `shapes`. Raises: Unavailable if the file has another model's."""
    if {name: tuple(tensor.shape) for name, tensor in found.items()} != shapes:
        raise Unavailable(f"{path} holds the weights of another model; remove it")
    return {name: found[name] for name in shapes}


def save_run(folder: Path, model: Transformer) -> Path:
    """Keep a trained model's weights in its run folder, all or nothing. Raises: OSError."""
    state = {name: tensor.detach().float() for name, tensor in model.state_dict().items()}
    path = folder / WEIGHTS
    _write(path, {n: tuple(t.shape) for n, t in state.items()}, state.values())
    return path


def _write(path: Path, shapes: dict[str, tuple[int, ...]], tensors: Iterable[torch.Tensor]) -> None:
    """A safetensors file of float32 tensors, of which only one at a time need be in memory.

    It appears under its name when it is whole: two that write it at once do no harm. Raises:
    OSError.
    """
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with partial.open("xb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for tensor in tensors:
                file.write(_bytes(tensor))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def sha256(named: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Of names and bytes, in the order given."""
    digest = hashlib.sha256()
    for name, tensor in named:
        digest.update(name.encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: torch.Tensor) -> memoryview:
    """Its bytes in memory, of any number format, for whoever reads buffers."""
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data
