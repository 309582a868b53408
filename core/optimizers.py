"""What the optimizers keep and by which constants they move: torch.optim's definitions."""

from dataclasses import dataclass

MOMENTUM = 0.9
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
WEIGHT_DECAY = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerKind:
    """State of one optimizer for each parameter and each parameter tensor."""

    n_buffers: int  # numbers kept for each parameter, in the parameter's format
    step_counter_bytes: int  # for each parameter tensor: one float32 scalar, or none
    constants: dict[str, float]


OPTIMIZERS = {
    "sgd": OptimizerKind(n_buffers=0, step_counter_bytes=0, constants={}),
    "momentum": OptimizerKind(n_buffers=1, step_counter_bytes=0, constants={"momentum": MOMENTUM}),
    "adamw": OptimizerKind(
        n_buffers=2,
        step_counter_bytes=4,
        constants={
            "beta_1": BETA_1,
            "beta_2": BETA_2,
            "epsilon": EPSILON,
            "weight_decay": WEIGHT_DECAY,
        },
    ),
}
