"""The catalogue of numbers on screen: what each means, counts and ignores, and where it is from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """The definition of a number; predicted and measured values share it."""

    id: str
    label: str
    unit: str  # base unit; components/theme.py makes it readable
    formula: str  # LaTeX
    counts: str
    ignores: str
    measured_how: str
    source: str
    tolerance: float  # relative error that would call the prediction wrong


QUANTITIES = {
    q.id: q
    for q in (
        Quantity(
            id="weights_bytes",
            label="Weights",
            unit="B",
            formula=r"P \times e",
            counts="every weight and bias",
            ignores="buffers that are not trained (there are none here)",
            measured_how="bytes of the distinct storages behind the parameters",
            source="definition; (inputs + 1) × outputs parameters for each layer",
            tolerance=0.0,
        ),
        Quantity(
            id="gradients_bytes",
            label="Gradients",
            unit="B",
            formula=r"P \times e",
            counts="one gradient for each parameter, in the parameter's format",
            ignores="gradients of activations, which live only during backward (temporaries)",
            measured_how="bytes of the distinct storages behind .grad after backward",
            source="torch autograd keeps .grad in the parameter's format",
            tolerance=0.0,
        ),
        Quantity(
            id="optimizer_bytes",
            label="Optimizer state",
            unit="B",
            formula=r"k \times P \times e + c \times n",
            counts="momentum, AdamW's two averages, and its step counters",
            ignores="temporaries inside the update",
            measured_how="bytes of the distinct storages in the optimizer's state after the update",
            source="torch.optim: SGD keeps 0 buffers, momentum 1, AdamW 2 and one float32 counter "
            "for each parameter tensor",
            tolerance=0.0,
        ),
        Quantity(
            id="activations_bytes",
            label="Activations",
            unit="B",
            formula=r"B \times \sum_i n_i \times e",
            counts="each distinct tensor kept for backward at the end of forward",
            ignores="the inputs and the parameters, which are kept too but have their own category",
            measured_how="autograd's saved-tensor hooks, one count for each storage",
            source="the op table: an activation's output serves its own derivative and the next "
            "layer's weight gradient, so it is kept once",
            tolerance=0.0,
        ),
        Quantity(
            id="peak_bytes",
            label="Peak",
            unit="B",
            formula=r"\max_t \; \sum_{c} \text{live}_c(t)",
            counts="every tensor alive at the fullest moment: weights, inputs, optimizer state, "
            "activations, gradients and temporaries",
            ignores="scratch memory that a library takes inside one op (up to a megabyte or so "
            "with bf16 and checkpointing), and the process itself",
            measured_how="the ledger: every storage followed from birth to death",
            source="the op table walked through the step, op by op: what each brings to life and "
            "lets go",
            tolerance=0.01,
        ),
    )
}
