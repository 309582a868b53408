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
        Quantity(
            id="held_bytes",
            label="Weights held",
            unit="B",
            formula=r"W + v \; (+ \, E + P)",
            counts="every weight in its format, with the scales and zeros that a group shares; "
            "E, an embedding that is not the head too; P, learned positions",
            ignores="what loading needs besides, for a moment",
            measured_how="bytes of the distinct storages behind the loaded weights",
            source="the op table: rows and columns of each matrix, and the format's bytes",
            tolerance=0.0,
        ),
        Quantity(
            id="read_bytes_per_token",
            label="Read for each token",
            unit="B",
            formula=r"W + v + r",
            counts="every matrix once, norms and biases, one row of the embedding; sequences of a "
            "batch share it",
            ignores="keys and values, and what one op hands to the next",
            measured_how="bytes of the tensors that a trip of one token multiplies by",
            source="the op table: a product with one vector reads its matrix once",
            tolerance=0.0,
        ),
        Quantity(
            id="kv_cache_bytes",
            label="KV cache, its room",
            unit="B",
            formula=r"2 \times L \times B \times S \times d_{kv} \times e",
            counts="a key and a value for each layer, sequence and place of the context",
            ignores="nothing: it is taken whole before the first token",
            measured_how="bytes of the distinct storages behind keys and values",
            source="definition; keys and values of 32 bits beside fp32 weights, else of 16",
            tolerance=0.0,
        ),
        Quantity(
            id="kv_filled_bytes",
            label="KV cache, filled now",
            unit="B",
            formula=r"2 \times L \times B \times T \times d_{kv} \times e",
            counts="keys and values of the tokens that were read: the newest one is not yet",
            ignores="the room that is still empty",
            measured_how="bytes of the cache up to the last token that was read",
            source="definition",
            tolerance=0.0,
        ),
        Quantity(
            id="answer_peak_bytes",
            label="Peak",
            unit="B",
            formula=r"W + C + i + a + t",
            counts="weights, cache, the prompt's tokens, rotary angles, and what is alive besides "
            "in the fullest op of the prefill",
            ignores="scratch memory that a library takes inside one op, and the process itself",
            measured_how="the ledger: every storage followed from birth to death, in the prefill",
            source="the op table walked through the prefill, op by op",
            tolerance=0.01,
        ),
        Quantity(
            id="ttft_s",
            label="First token after",
            unit="s",
            formula=r"o + p + a + e",
            counts="the prefill of all prompt tokens, and the choice of the first new one",
            ignores="loading the model, and waiting for a free place",
            measured_how="clock of the first trip",
            source="the op table, and speeds that were measured on this machine",
            tolerance=0.3,
        ),
        Quantity(
            id="tpot_s",
            label="Each further token",
            unit="s",
            formula=r"o + w + c",
            counts="one trip through all layers, and the choice of a token",
            ignores="what happens between trips: telling, drawing",
            measured_how="clock of every further trip; the median",
            source="the op table, and speeds that were measured on this machine",
            tolerance=0.3,
        ),
        Quantity(
            id="tpot_overhead_s",
            label="of it, overhead of the ops",
            unit="s",
            formula=r"n \times t",
            counts="what every op of a trip costs however little it does",
            ignores="the bytes that it reads",
            measured_how="the clock of each op of a trip, less the time of its bytes",
            source="this machine's calibration",
            tolerance=0.5,
        ),
        Quantity(
            id="tpot_weights_s",
            label="of it, reading weights",
            unit="s",
            formula=r"W / b",
            counts="every matrix once",
            ignores="what each product costs besides",
            measured_how="not by itself: it is part of each product's time",
            source="this machine's calibration",
            tolerance=0.5,
        ),
        Quantity(
            id="tpot_cache_s",
            label="of it, keys and values",
            unit="s",
            formula=r"C / b",
            counts="keys and values of all tokens so far, in the middle of the answer",
            ignores="what the op of attention costs besides",
            measured_how="not by itself: it is part of attention's time",
            source="this machine's calibration",
            tolerance=0.5,
        ),
        Quantity(
            id="tokens_per_s",
            label="Throughput",
            unit="tokens/s",
            formula=r"\frac{B \times n}{t_{\text{first}} + (n - 1)\, t_{\text{further}}}",
            counts="new tokens of all sequences over the time of all trips",
            ignores="what happens between trips",
            measured_how="new tokens divided by the sum of all trips' times",
            source="definition",
            tolerance=0.3,
        ),
        Quantity(
            id="step_tokens_per_s",
            label="Throughput of training",
            unit="tokens/s",
            formula=r"\frac{B \times T}{o + p + u}",
            counts="every token that the step reads, over forward, loss, backward and update",
            ignores="memory that is taken for the first time, page by page: all of the optimizer's "
            "state in a first update, which is slower for it",
            measured_how="tokens of the recorded step divided by its time, the median of repeats",
            source="the op table, and speeds that were measured on this machine",
            tolerance=0.5,
        ),
        Quantity(
            id="largest_change",
            label="Largest change of a weight",
            unit="1",
            formula=r"\eta \left| \frac{\hat m}{\sqrt{\hat v} + \epsilon} \right|",
            counts="the weight that the update moves furthest",
            ignores="weight decay, which pulls large weights a little further",
            measured_how="largest difference of any weight before and after the update",
            source="AdamW's first update: both averages hold one gradient, so that their ratio is "
            "its sign (Loshchilov and Hutter 2019)",
            tolerance=0.2,
        ),
        Quantity(
            id="answer_change",
            label="Largest change of a weight",
            unit="1",
            formula="0",
            counts="every weight in memory, while an answer is given",
            ignores="nothing: the same hash before and after leaves no room for one changed bit",
            measured_how="SHA-256 of the names and bytes of all weights before and after",
            source="definition of inference: no gradient is computed and nothing is written back",
            tolerance=0.0,
        ),
        Quantity(
            id="params",
            label="Parameters",
            unit="params",
            formula=r"\sum_{\text{ops}} r \times p",
            counts="every number that training would change, embeddings included",
            ignores="buffers: masks, rotary tables, biases of routers that are not trained by "
            "gradients",
            measured_how="elements of all parameters of the model in memory",
            source="the op table: sizes of each row's tensors, times how often the layer stands",
            tolerance=0.0,
        ),
        Quantity(
            id="model_step_peak_bytes",
            label="A training step",
            unit="B",
            formula=r"P\,(w + g_0 + s) + \max_t \; \text{live}(t)",
            counts="weights, master copy, moments, and the highest moment of activations, logits, "
            "gradients and temporaries",
            ignores="the program's own context, fragmentation, buffers of communication; fused "
            "kernels that save less, and frameworks that save more",
            measured_how="the ledger, where the model fits this machine",
            source="the op table walked through the step, layer by layer",
            tolerance=0.01,
        ),
        Quantity(
            id="model_answer_peak_bytes",
            label="Answering",
            unit="B",
            formula=r"W + C + t",
            counts="weights in their format, keys and values of all sequences at full length, and "
            "what the reading of one more prompt holds for a moment",
            ignores="the program's own context, fragmentation, what an engine sets aside",
            measured_how="the ledger, where the model fits this machine",
            source="the op table, the format's blocks, and the layers' caches",
            tolerance=0.01,
        ),
        Quantity(
            id="model_cache_bytes",
            label="KV cache",
            unit="B",
            formula=r"B \sum_{\text{layers}} \min(S, w) \times n \times e",
            counts="keys and values of every sequence and layer; of a window no more than it "
            "holds, of compressed ones the compressed, of a state the state",
            ignores="blocks in which an engine hands memory out",
            measured_how="bytes of the distinct storages behind the cache",
            source="definition, by kind of layer",
            tolerance=0.0,
        ),
        Quantity(
            id="device_step_s",
            label="A training step",
            unit="s",
            formula=r"\sum_{\text{ops}} \max\left(\frac{F}{P}, \frac{M}{b}\right)",
            counts="forward, backward at twice its bytes, what is computed again, and the update "
            "of weights and optimizer state",
            ignores="links between devices, starting of ops, kernels that fuse several ops",
            measured_how="the ladder's steps, where the model fits this machine",
            source="the op table on a roofline (Williams et al. 2009), op after op",
            tolerance=0.25,
        ),
        Quantity(
            id="device_ttft_s",
            label="Reading the prompt",
            unit="s",
            formula=r"\sum_{\text{ops}} \max\left(\frac{F}{P}, \frac{M}{b}\right)",
            counts="one pass over all tokens of the prompt, logits of the last one",
            ignores="waiting for a turn, links between devices, starting of ops, fused kernels",
            measured_how="the ladder's prompts, where the model fits this machine",
            source="the op table on a roofline (Williams et al. 2009), op after op",
            tolerance=0.25,
        ),
        Quantity(
            id="device_tpot_s",
            label="Each token",
            unit="s",
            formula=r"\sum_{\text{ops}} \max\left(\frac{F}{P}, \frac{W + C + x}{b}\right)",
            counts="W, weights that are read, of experts those that the batch meets; C, keys and "
            "values of all tokens before; x, what ops hand to each other",
            ignores="links between devices, starting of ops, choosing the token",
            measured_how="the ladder's further tokens, where the model fits this machine",
            source="the op table on a roofline (Pope et al. 2022, arXiv:2211.05102)",
            tolerance=0.25,
        ),
        Quantity(
            id="device_step_tokens_per_s",
            label="Training",
            unit="tokens/s",
            formula=r"\frac{B \times T}{t}",
            counts="tokens of all sequences of a step",
            ignores="loading of data, checkpoints, restarts",
            measured_how="the ladder's steps",
            source="definition",
            tolerance=0.25,
        ),
        Quantity(
            id="device_tokens_per_s",
            label="Answering",
            unit="tokens/s",
            formula=r"\frac{B}{t}",
            counts="tokens of all sequences that are answered at once, while they decode",
            ignores="time that goes to prompts of others",
            measured_how="the ladder's further tokens",
            source="definition",
            tolerance=0.25,
        ),
    )
}
