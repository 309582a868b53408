"""What a model is, without weights: layer sizes and how they are joined."""

from dataclasses import dataclass

from core.specs import TrainSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpShape:
    """A multi-layer perceptron: `d_in -> hidden ... -> d_out`, each layer with a bias."""

    d_in: int
    hidden: tuple[int, ...]
    d_out: int
    activation: str  # of the hidden layers
    output_activation: str = "tanh"

    @classmethod
    def of(cls, spec: TrainSpec) -> "MlpShape":
        return cls(d_in=len(spec.features), hidden=spec.hidden, d_out=1, activation=spec.activation)

    @property
    def widths(self) -> tuple[int, ...]:
        """Sizes of all columns, inputs first and output last."""
        return (self.d_in, *self.hidden, self.d_out)

    @property
    def layers(self) -> tuple[tuple[str, int, int, str], ...]:
        """(name, inputs, outputs, activation) of each layer, in forward order."""
        names = [f"layers.{i}" for i in range(len(self.hidden))] + ["head"]
        activations = [self.activation] * len(self.hidden) + [self.output_activation]
        widths = self.widths
        return tuple(
            (name, widths[i], widths[i + 1], activations[i]) for i, name in enumerate(names)
        )

    @property
    def n_params(self) -> int:
        """Weights and biases: sum over layers of (inputs + 1) x outputs."""
        return sum((d_in + 1) * d_out for _, d_in, d_out, _ in self.layers)
