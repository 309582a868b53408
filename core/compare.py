"""A prediction beside a measurement of the same quantity."""

from dataclasses import dataclass

from core.memory import Prediction
from core.quantities import QUANTITIES, Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Predicted, measured, and the signed relative error between them."""

    prediction: Prediction
    measured: float | None  # None: nothing was measured yet

    @property
    def quantity(self) -> Quantity:
        return QUANTITIES[self.prediction.quantity]

    @property
    def error(self) -> float | None:
        """predicted / measured - 1; 0 where both are 0; infinite where only measured is 0."""
        if self.measured is None:
            return None
        if self.measured == 0:
            return 0.0 if self.prediction.value == 0 else float("inf")
        return self.prediction.value / self.measured - 1


def compare(
    predictions: dict[str, Prediction], measured: dict[str, float]
) -> tuple[Comparison, ...]:
    """Join on the quantity id, in the predictions' order."""
    return tuple(
        Comparison(prediction=p, measured=measured.get(name)) for name, p in predictions.items()
    )
