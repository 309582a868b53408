"""A transformer that only answers: fused matrices in one weight format, and a cache of keys and
values.

The same passes serve a whole prompt and a single token. Every op of the op table is run in the
table's order, and `done(output)` is called after each, so that whoever times or follows a trip
needs no names here.

Shape suffixes as in core/engine/models.py; M = B × T tokens of a trip, S tokens in the cache.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from core.engine import kernels
from core.engine.kernels import Matrix, RawBlocks
from core.engine.models import NORM_EPSILON
from core.shapes import TransformerShape

Done = Callable[[torch.Tensor], None]
Norm = tuple[torch.Tensor, torch.Tensor | None]  # weight and bias


def unwatched(output: torch.Tensor) -> None:
    """The default of `done`."""


@dataclass(slots=True, kw_only=True)
class _Layer:
    attn_norm: Norm
    qkv: Matrix
    qkv_bias: torch.Tensor | None
    out: Matrix
    out_bias: torch.Tensor | None
    mlp_norm: Norm
    up: Matrix  # of SwiGLU: gate and up in one
    up_bias: torch.Tensor | None
    down: Matrix
    down_bias: torch.Tensor | None
    keys_BKSE: torch.Tensor
    values_BKSE: torch.Tensor


class Decoder:
    """One model in one weight format with room for `context` tokens in each of B sequences.

    The stream and the results of all products are float32; keys and values are bfloat16 where the
    weights are not float32. Weights come under the names of `Transformer.state_dict()`.
    """

    def __init__(
        self,
        shape: TransformerShape,
        weights: dict[str, torch.Tensor],
        weight_format: str = "fp32",
        *,
        batch_size: int = 1,
        context: int,
        raw: dict[str, RawBlocks] | None = None,
    ) -> None:
        self.shape = replace(shape, attention="flash", dropout=0.0)
        self.weight_format = weight_format
        self.batch_size, self.context = batch_size, context
        self.length = 0  # tokens in the cache
        self._gated = shape.mlp == "swiglu"
        self._rotates = shape.positions == "rope"
        self._wide = weight_format in ("fp32", "file")
        self._cache_dtype = torch.float32 if self._wide else torch.bfloat16
        raw = raw or {}

        def matrix(name: str, *more: str) -> Matrix:
            names = (name, *more)
            dense = [weights[f"{n}.weight"] for n in names]
            if name.endswith("attn.qkv") and self._rotates:
                dense = [_paired(dense[0], self.shape)]
            blocks = [raw[f"{n}.weight"] for n in names] if raw else []
            return kernels.make(
                torch.cat(dense) if more else dense[0],
                weight_format,
                kernels.stacked(blocks) if blocks else None,
            )

        def bias(*names: str) -> torch.Tensor | None:
            if not shape.bias:
                return None
            found = torch.cat([weights[f"{n}.bias"] for n in names])
            paired = names[0].endswith("attn.qkv") and self._rotates
            return _paired(found[:, None], self.shape)[:, 0] if paired else found

        def norm(name: str) -> Norm:
            return weights[f"{name}.weight"].clone(), _cloned(weights.get(f"{name}.bias"))

        self._embed = matrix("embed.tokens")
        self._head = self._embed if shape.tied else matrix("head")
        self._positions = _cloned(weights.get("embed.positions.weight"))
        self._norm = norm("norm")
        self._turns_SR = _turns(shape, context) if self._rotates else None
        self._layers: list[_Layer] = []
        for i in range(shape.n_layer):
            attn, mlp = f"blocks.{i}.attn", f"blocks.{i}.mlp"
            wide = (f"{mlp}.gate", f"{mlp}.up") if self._gated else (f"{mlp}.up",)
            self._layers.append(
                _Layer(
                    attn_norm=norm(f"{attn}.norm"),
                    qkv=matrix(f"{attn}.qkv"),
                    qkv_bias=bias(f"{attn}.qkv"),
                    out=matrix(f"{attn}.out"),
                    out_bias=bias(f"{attn}.out"),
                    mlp_norm=norm(f"{mlp}.norm"),
                    up=matrix(*wide),
                    up_bias=bias(*wide),
                    down=matrix(f"{mlp}.down"),
                    down_bias=bias(f"{mlp}.down"),
                    keys_BKSE=self._room(),
                    values_BKSE=self._room(),
                )
            )

    def with_room(self, *, batch_size: int, context: int) -> "Decoder":
        """The same weights, in the same memory, with a cache of its own."""
        other = copy.copy(self)
        other.batch_size, other.context, other.length = batch_size, context, 0
        other._turns_SR = _turns(self.shape, context) if self._rotates else None
        other._layers = [
            replace(layer, keys_BKSE=other._room(), values_BKSE=other._room())
            for layer in self._layers
        ]
        return other

    def _room(self) -> torch.Tensor:
        """Of the keys, or the values, of a layer."""
        size = (self.batch_size, self.shape.n_kv_head, self.context, self.shape.d_head)
        return torch.zeros(size, dtype=self._cache_dtype)

    # -- running --------------------------------------------------------------------------------

    @torch.inference_mode()
    def trip(
        self, tokens_BT: torch.Tensor, done: Done = unwatched, *, every: bool = False
    ) -> torch.Tensor:
        """Read tokens after those in the cache; logits of each sequence's last, shape (B, V).

        `every`: of every token, shape (B, T, V). Raises: ValueError if the cache has no room.
        """
        batch_size, n_new = tokens_BT.shape
        if self.length + n_new > self.context:
            raise ValueError(
                f"tokens={self.length + n_new} do not fit a context of {self.context}; "
                "shorten the prompt or give it more context"
            )
        start, self.length = self.length, self.length + n_new
        single = batch_size * n_new == 1
        x = self._embed.rows(tokens_BT.flatten())
        if single:
            x = x[0]
        done(x)
        if self._positions is not None:
            places = self._positions[start : start + n_new]
            x = x + (places[0] if single else places.repeat(batch_size, 1))
            done(x)
        turns = mask = None
        if self._turns_SR is not None:
            turns = self._turns_SR[start : start + n_new, None]
            done(turns)
        if start and n_new > 1:
            mask = torch.ones(n_new, self.length, dtype=torch.bool).tril_(start)
        for layer in self._layers:
            h = self._normed(x, layer.attn_norm)
            done(h)
            h = _product(layer.qkv, h, layer.qkv_bias)
            done(h)
            h = self._attended(layer, h, turns, mask, start, batch_size, n_new, done)
            h = _product(layer.out, h, layer.out_bias)
            done(h)
            x = x + h
            done(x)
            h = self._normed(x, layer.mlp_norm)
            done(h)
            h = _product(layer.up, h, layer.up_bias)
            done(h)
            if self._gated:
                gate, h = h.chunk(2, dim=-1)
                gate = F.silu(gate)
                done(gate)
                h = gate.mul_(h)
                del gate  # or it would be held until the next layer's
            else:
                h = F.gelu(h)
            done(h)
            h = _product(layer.down, h, layer.down_bias)
            done(h)
            x = x + h
            done(x)
        x = x.view(batch_size, n_new, -1)
        x = x if every else x[:, -1]
        h = self._normed(x, self._norm)
        done(h)
        h = h.reshape(-1, self.shape.d_model)
        logits = self._head.product(h[0])[None] if len(h) == 1 else self._head.product(h)
        logits = logits.view(*x.shape[:-1], -1)
        done(logits)
        return logits

    def _normed(self, x: torch.Tensor, norm: Norm) -> torch.Tensor:
        weight, bias = norm
        if self.shape.norm == "rmsnorm":
            return F.rms_norm(x, weight.shape, weight, NORM_EPSILON)
        return F.layer_norm(x, weight.shape, weight, bias, NORM_EPSILON)

    def _attended(
        self,
        layer: _Layer,
        h: torch.Tensor,
        turns: torch.Tensor | None,
        mask: torch.Tensor | None,
        start: int,
        batch_size: int,
        n_new: int,
        done: Done,
    ) -> torch.Tensor:
        """Keys and values into the cache, then attention over all of it; shape (M, H × E)."""
        shape = self.shape
        n_head, n_kv_head = shape.n_head, shape.n_kv_head
        h_BTNE = h.view(batch_size, n_new, n_head + 2 * n_kv_head, shape.d_head)
        if turns is not None:
            turned = h_BTNE[:, :, : n_head + n_kv_head]
            torch.view_as_complex(turned.unflatten(-1, (-1, 2))).mul_(turns)
            done(h)
        if n_new == 1:
            y = self._of_one_token(layer, h, start)
        else:
            y = self._of_many_tokens(layer, h_BTNE, mask, start)
        y = y.float().view(*h.shape[:-1], shape.d_q)
        done(y)
        return y

    def _of_one_token(self, layer: _Layer, h: torch.Tensor, start: int) -> torch.Tensor:
        """The heads that share keys stand in for tokens: nothing is repeated, nothing turned."""
        shape, end = self.shape, start + 1
        k, v = shape.d_q, shape.d_q + shape.d_kv
        by_group = (self.batch_size, shape.n_kv_head, -1, shape.d_head)
        by_head = (self.batch_size, shape.n_kv_head, shape.d_head)
        layer.keys_BKSE.select(2, start).copy_(h[..., k:v].view(by_head))
        layer.values_BKSE.select(2, start).copy_(h[..., v:].view(by_head))
        return F.scaled_dot_product_attention(
            h[..., :k].view(by_group).to(self._cache_dtype),
            layer.keys_BKSE.narrow(2, 0, end),
            layer.values_BKSE.narrow(2, 0, end),
        )

    def _of_many_tokens(
        self, layer: _Layer, h_BTNE: torch.Tensor, mask: torch.Tensor | None, start: int
    ) -> torch.Tensor:
        n_head, n_kv_head = self.shape.n_head, self.shape.n_kv_head
        end = start + h_BTNE.shape[1]
        q_BTHE, k_BTKE, v_BTKE = h_BTNE.split([n_head, n_kv_head, n_kv_head], dim=2)
        layer.keys_BKSE[:, :, start:end] = k_BTKE.transpose(1, 2)
        layer.values_BKSE[:, :, start:end] = v_BTKE.transpose(1, 2)
        y_BHTE = F.scaled_dot_product_attention(
            q_BTHE.transpose(1, 2).to(self._cache_dtype),
            layer.keys_BKSE[:, :, :end],
            layer.values_BKSE[:, :, :end],
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=n_head != n_kv_head,
        )
        return y_BHTE.transpose(1, 2).flatten(2)

    # -- what it holds --------------------------------------------------------------------------

    @property
    def matrices(self) -> Iterator[Matrix]:
        """Every matrix once: the head's is the embedding's where they are tied."""
        yield self._embed
        for layer in self._layers:
            yield from (layer.qkv, layer.out, layer.up, layer.down)
        if self._head is not self._embed:
            yield self._head

    @property
    def weights(self) -> Iterator[torch.Tensor]:
        """Every tensor that a trip reads and none may change."""
        for matrix in self.matrices:
            yield from (tensor for _, tensor in matrix.stored())
        yield from self._vectors()
        if self._positions is not None:
            yield self._positions

    def _vectors(self) -> Iterator[torch.Tensor]:
        """Norms and biases."""
        norms = [self._norm]
        for layer in self._layers:
            norms += [layer.attn_norm, layer.mlp_norm]
            biases = (layer.qkv_bias, layer.out_bias, layer.up_bias, layer.down_bias)
            yield from (bias for bias in biases if bias is not None)
        for weight, bias in norms:
            yield weight
            if bias is not None:
                yield bias

    @property
    def cache(self) -> Iterator[torch.Tensor]:
        for layer in self._layers:
            yield from (layer.keys_BKSE, layer.values_BKSE)

    @property
    def constants(self) -> Iterator[torch.Tensor]:
        """What depends on places alone: RoPE's angles for the whole context."""
        if self._turns_SR is not None:
            yield self._turns_SR

    def keys(self, i: int) -> torch.Tensor:
        """Of layer i, as far as they are filled; shape (B, K, S, E), a view."""
        return self._layers[i].keys_BKSE[:, :, : self.length]

    @property
    def filled_bytes(self) -> int:
        """Of the cache, as far as it is filled."""
        return sum(t[:, :, : self.length].numel() * t.element_size() for t in self.cache)

    @property
    def read_bytes(self) -> int:
        """Of weights that a trip of one token reads; of the embedding a row, of the head all."""
        matrices = [self._head]
        for layer in self._layers:
            matrices += [layer.qkv, layer.out, layer.up, layer.down]
        row = self._embed.stored_bytes // self.shape.vocab_size
        vectors = sum(t.numel() * t.element_size() for t in self._vectors())
        return sum(m.read_bytes for m in matrices) + vectors + row

    def canonical(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights in memory under their names in `Transformer.state_dict()`, in its order;
        what cannot be told apart in a packed format, under the names of its parts.
        """
        if self.weight_format != "fp32":
            for i, tensor in enumerate(self.weights):
                yield f"stored.{i}", tensor
            return
        yield "embed.tokens.weight", self._embed.dense()
        if self._positions is not None:
            yield "embed.positions.weight", self._positions
        for i, layer in enumerate(self._layers):
            attn, mlp = f"blocks.{i}.attn", f"blocks.{i}.mlp"
            yield from _named(f"{attn}.norm", *layer.attn_norm)
            qkv, bias = layer.qkv.dense(), layer.qkv_bias
            if self._rotates:
                qkv = _halved(qkv, self.shape)
                bias = None if bias is None else _halved(bias[:, None], self.shape)[:, 0]
            yield from _named(f"{attn}.qkv", qkv, bias)
            yield from _named(f"{attn}.out", layer.out.dense(), layer.out_bias)
            yield from _named(f"{mlp}.norm", *layer.mlp_norm)
            names = ("gate", "up") if self._gated else ("up",)
            parts = layer.up.dense().chunk(len(names))
            bias = layer.up_bias
            biases = [None] * len(names) if bias is None else bias.chunk(len(names))
            for name, part, b in zip(names, parts, biases, strict=True):
                yield from _named(f"{mlp}.{name}", part, b)
            yield from _named(f"{mlp}.down", layer.down.dense(), layer.down_bias)
        yield from _named("norm", *self._norm)
        if self._head is not self._embed:
            yield "head.weight", self._head.dense()


def _named(
    path: str, weight: torch.Tensor, bias: torch.Tensor | None
) -> Iterator[tuple[str, torch.Tensor]]:
    yield f"{path}.weight", weight
    if bias is not None:
        yield f"{path}.bias", bias


def _cloned(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.clone()


# -- positions ----------------------------------------------------------------------------------


def _turns(shape: TransformerShape, context: int) -> torch.Tensor:
    """RoPE's angles as complex numbers of length 1, shape (S, R)."""
    frequency_R = shape.rope_base ** (torch.arange(0, shape.d_head, 2) / -shape.d_head)
    angle_SR = torch.outer(torch.arange(context), frequency_R)
    return torch.polar(torch.ones_like(angle_SR), angle_SR)


def _paired(rows_ND: torch.Tensor, shape: TransformerShape) -> torch.Tensor:
    """Rows of queries and keys so that the two that RoPE turns together are neighbours, which
    makes the turn one complex product; values stay. Scores do not depend on the order.
    """
    n_turned = shape.d_q + shape.d_kv
    turned = rows_ND[:n_turned].view(-1, 2, shape.d_head // 2, rows_ND.shape[1])
    turned = turned.transpose(1, 2).reshape(n_turned, -1)
    return torch.cat([turned, rows_ND[n_turned:]])


def _halved(rows_ND: torch.Tensor, shape: TransformerShape) -> torch.Tensor:
    """What `_paired` was made from."""
    n_turned = shape.d_q + shape.d_kv
    turned = rows_ND[:n_turned].view(-1, shape.d_head // 2, 2, rows_ND.shape[1])
    turned = turned.transpose(1, 2).reshape(n_turned, -1)
    return torch.cat([turned, rows_ND[n_turned:]])


def _product(matrix: Matrix, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    y = matrix.product(x)
    return y if bias is None else y.add_(bias)
