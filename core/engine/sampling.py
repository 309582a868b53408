"""From logits to the next token."""

import torch


def probabilities(logits_BV: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """The full softmax at a temperature, shape (B, V), float32; at 0 that of temperature 1."""
    return torch.softmax(logits_BV.float() / (temperature or 1.0), dim=-1)


def allowed(probs_BV: torch.Tensor, top_k: int = 0, top_p: float = 1.0) -> torch.Tensor:
    """Probabilities among the tokens that may be drawn, shape (B, V); 0 elsewhere, sums 1.

    `top_k`: so many of the likeliest, 0: all. `top_p`: of the full softmax, the fewest likeliest
    whose sum reaches it (Holtzman et al. 2019). A token must pass both; the likeliest always does.
    """
    if not top_k and top_p >= 1:
        return probs_BV
    sorted_BV, order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    out_BV = sorted_BV.cumsum(dim=-1) - sorted_BV >= top_p  # what came before reached it
    if top_k:
        out_BV[:, top_k:] = True
    out_BV[:, 0] = False
    kept_BV = sorted_BV.masked_fill(out_BV, 0.0)
    kept_BV = kept_BV / kept_BV.sum(dim=-1, keepdim=True)
    return torch.zeros_like(probs_BV).scatter_(-1, order_BV, kept_BV)


def draw(
    probs_BV: torch.Tensor,
    temperature: float,
    top_k: int,
    top_p: float,
    generator: torch.Generator,
) -> torch.Tensor:
    """A token of each row, shape (B,): the likeliest at temperature 0, else drawn."""
    if temperature == 0:
        return probs_BV.argmax(dim=-1)
    return torch.multinomial(allowed(probs_BV, top_k, top_p), 1, generator=generator)[:, 0]
