"""Weights of models that answer, under the names of `core.engine.models.Transformer`."""

import contextlib
import hashlib
import json
import math
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from core import pretrained
from core.engine.kernels import RawBlocks
from core.engine.models import Transformer
from core.pretrained import PRETRAINED, WEIGHTS, Gguf, Stored, Unavailable, known, models_folder
from core.shapes import TransformerShape
from core.units import FP32

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


def blocks_of(model: str) -> dict[str, RawBlocks]:
    """Every weight of a published model as its file has it, in the order of the model's state; the
    file is mapped, not read. Norms are matrices of one row.

    Queries, keys and values are one matrix here and three in the file: their rows are joined, as
    they are. `rows_in_file` says which of them is which row of the model's.

    Raises: Unavailable.
    """
    gguf = pretrained.gguf_of(model)
    mapped = np.memmap(gguf.path, np.uint8, mode="c")  # "c": torch warns of what is read-only
    return {
        name: _joined(torch.from_numpy(mapped), _found(gguf, tensors))
        for name, tensors in _tensors_of(pretrained.shape_of(model))
    }


def rows_in_file(shape: TransformerShape) -> torch.Tensor:
    """Which of the file's rows of queries, keys and values each of the model's is: the model turns
    channels r and r + d_head / 2 of a head together, and the file has such pairs side by side.

    Source: `permute` in llama.cpp's conversion of Llama. Checked: the logits of transformers'
    Llama, and that without it they are others (tests/core/test_weights.py).
    """
    rows = torch.arange(shape.d_q + 2 * shape.d_kv)
    turned, values = rows.split([shape.d_q + shape.d_kv, shape.d_kv])
    return torch.cat([turned.view(-1, shape.d_head // 2, 2).transpose(1, 2).flatten(), values])


def _tensors_of(shape: TransformerShape) -> Iterator[tuple[str, list[str]]]:
    """(weight, the file's tensors that it is made of), in the order of the model's state."""
    yield "embed.tokens.weight", ["token_embd"]
    for i in range(shape.n_layer):
        ours, theirs = f"blocks.{i}", f"blk.{i}"
        yield f"{ours}.attn.norm.weight", [f"{theirs}.attn_norm"]
        yield f"{ours}.attn.qkv.weight", [f"{theirs}.attn_{part}" for part in "qkv"]
        yield f"{ours}.attn.out.weight", [f"{theirs}.attn_output"]
        yield f"{ours}.mlp.norm.weight", [f"{theirs}.ffn_norm"]
        for part in ("gate", "up", "down"):
            yield f"{ours}.mlp.{part}.weight", [f"{theirs}.ffn_{part}"]
    yield "norm.weight", ["output_norm"]
    if not shape.tied:
        yield "head.weight", ["output"]


def _found(gguf: Gguf, tensors: list[str]) -> list[Stored]:
    """Where the parts of one weight are, of one type and width."""
    try:
        found = [gguf.tensors[f"{name}.weight"] for name in tensors]
    except KeyError as why:
        raise Unavailable(f"{gguf.path} has no tensor {why}; fetch it again") from None
    if len({(stored.type, stored.shape[-1]) for stored in found}) > 1:
        raise Unavailable(f"{gguf.path} has {', '.join(tensors)} in different types or widths")
    return found


def _joined(file: torch.Tensor, found: list[Stored]) -> RawBlocks:
    """One weight from the rows of its parts."""
    raws = [
        file[stored.offset : stored.offset + stored.n_bytes].view(stored.n_rows, -1)
        for stored in found
    ]
    raw = torch.cat(raws) if len(raws) > 1 else raws[0]
    return RawBlocks(type=found[0].type, raw=raw, shape=(len(raw), found[0].shape[-1]))


# -- what blocks say ----------------------------------------------------------------------------


def dense(blocks: RawBlocks) -> torch.Tensor:
    """The numbers of a matrix of a file in float32, (N, D), its rows as they are.

    Q4_1, 20 bytes for 32 numbers: scale and least value in float16, then numbers i and i + 16 as
    the low and high half of byte i. Q8_0, 34 bytes for 32: scale in float16, then a signed byte
    each. Source: ggml, `ggml-common.h`. Checked: the package gguf (tests/core/test_weights.py).
    """
    return _READERS[blocks.type](blocks.raw).view(blocks.shape)


def _f32(raw: torch.Tensor) -> torch.Tensor:
    return raw.contiguous().view(torch.float32)


def _q4_1(raw: torch.Tensor) -> torch.Tensor:
    blocks = raw.view(-1, 20)
    scale, least = blocks[:, :4].contiguous().view(torch.float16).float().split(1, dim=1)
    codes = torch.cat([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], dim=1)
    return codes.float().mul_(scale).add_(least)


def _q8_0(raw: torch.Tensor) -> torch.Tensor:
    blocks = raw.view(-1, 34)
    scale = blocks[:, :2].contiguous().view(torch.float16).float()
    return blocks[:, 2:].view(torch.int8).float().mul_(scale)


_READERS = {"F32": _f32, "Q4_1": _q4_1, "Q8_0": _q8_0}


# -- in float32, kept ---------------------------------------------------------------------------


def _published(model: str, shape: TransformerShape) -> Weights:
    """Its weights, mapped from the file that keeps them; the first time that file is made."""
    cache = models_folder() / f"{model}-{known(model).sha256[:8]}-fp32.{CACHE_LAYOUT}.safetensors"
    shapes = _shapes(pretrained.gguf_of(model), shape)
    with contextlib.suppress(OSError, SafetensorError, Unavailable):
        return _in_order(load_file(cache), shapes, cache)
    pretrained.require_unchanged(pretrained.located(model), known(model))
    blocks, rows = blocks_of(model), rows_in_file(shape)
    with contextlib.suppress(OSError, SafetensorError, Unavailable):
        cache.parent.mkdir(parents=True, exist_ok=True)
        _write(cache, shapes, (_in_model(n, found, rows) for n, found in blocks.items()))
        return _in_order(load_file(cache), shapes, cache)
    # The disk is full, or the folder is not ours: this process has its own.
    return from_blocks(blocks, shape)


def from_blocks(blocks: dict[str, RawBlocks], shape: TransformerShape) -> Weights:
    """The model's weights from its file's blocks, all of them in memory."""
    rows = rows_in_file(shape)
    return {name: _in_model(name, found, rows) for name, found in blocks.items()}


def _in_model(name: str, found: RawBlocks, rows: torch.Tensor) -> torch.Tensor:
    """A weight of the file as the model's state has it, in float32."""
    weight = dense(found)
    if name.endswith("attn.qkv.weight"):
        weight = weight[rows]
    return weight[0] if name.endswith("norm.weight") else weight


def _shapes(gguf: Gguf, shape: TransformerShape) -> dict[str, tuple[int, ...]]:
    """Of the model's weights by what the file says, in the order of the model's state."""
    shapes = {}
    for name, tensors in _tensors_of(shape):
        found = _found(gguf, tensors)
        n_rows, n_columns = sum(stored.n_rows for stored in found), found[0].shape[-1]
        shapes[name] = (n_columns,) if name.endswith("norm.weight") else (n_rows, n_columns)
    return shapes


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
        begin, end = end, end + FP32.n_bytes * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    pretrained.sweep(path.parent, f".{path.name}.*")
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
