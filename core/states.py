"""What training holds for each parameter, whatever is computed: weights, gradients, master copy,
moments. Why one source says 8 bytes and another 20, and what sharding makes of it.

Bytes here are bytes for each parameter, until a function says `Bytes`.

Checked: published tables in tests/data/oracle.csv (tests/core/test_states.py).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.sizes import Bytes

SIZES = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "none": 0}
_SAME = {
    "float64": "fp64",
    "float32": "fp32",
    "tf32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "8bit": "int8",
}


def size(number_format: str) -> float:
    """Bytes of one number; of `fp32+bf16`, both. Raises: ValueError naming the formats."""
    parts = [part.strip().lower() for part in number_format.split("+")]
    parts = [_SAME.get(part, part) for part in parts]
    for part in parts:
        if part not in SIZES:
            raise ValueError(f"format={part!r} is unknown; choose {', '.join(SIZES)}")
    return sum(SIZES[part] for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is held for each parameter, in bytes, all through training."""

    name: str
    label: str
    weights: float
    gradients: float
    moments: float  # all of them; of AdamW two, unless `with_optimizer` says another
    master: float = 0  # a wider copy that the update works on
    accumulator: float = 0  # gradients summed in a wider format beside the gradients
    computes: str = "fp32"  # format of weights and stream while a step is taken
    autocast: bool = False  # products in bf16 over weights in fp32
    note: str = ""

    @property
    def bytes_per_param(self) -> float:
        return self.weights + self.gradients + self.master + self.moments + self.accumulator

    @property
    def states(self) -> float:
        """Of them, what the optimizer keeps for itself."""
        return self.master + self.moments + self.accumulator


RECIPES = {
    r.name: r
    for r in (
        Recipe(
            name="fp32",
            label="fp32",
            weights=4,
            gradients=4,
            moments=8,
            note="everything in fp32",
        ),
        Recipe(
            name="autocast",
            label="bf16 autocast",
            weights=4,
            gradients=4,
            moments=8,
            autocast=True,
            note="weights, gradients and moments in fp32; products in bf16 on copies that a step "
            "makes (torch.autocast)",
        ),
        Recipe(
            name="mixed16",
            label="bf16 + fp32 master",
            weights=2,
            gradients=2,
            master=4,
            moments=8,
            computes="bf16",
            note="ZeRO's 2 + 2 + 12",
        ),
        Recipe(
            name="mixed18",
            label="bf16, fp32 gradients",
            weights=2,
            gradients=4,
            master=4,
            moments=8,
            computes="bf16",
            note="Megatron with bf16: 2 + 4 + 12",
        ),
        Recipe(
            name="mixed20",
            label="fp16, gradients twice",
            weights=2,
            gradients=2,
            accumulator=4,
            master=4,
            moments=8,
            computes="fp16",
            note="Megatron with fp16, or bf16 with an fp32 accumulator: 2 + 2 + 4 + 12",
        ),
        Recipe(
            name="bf16",
            label="bf16 alone",
            weights=2,
            gradients=2,
            moments=4,
            computes="bf16",
            note="no master copy: small updates are rounded away",
        ),
        Recipe(
            name="fp8",
            label="fp8, DeepSeek-V3",
            weights=1,
            gradients=2,
            accumulator=4,
            master=4,
            moments=4,
            computes="bf16",
            note="fp8 weights, bf16 gradients and moments, fp32 master copy and accumulator",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerState:
    """What an optimizer keeps for each parameter beside a master copy."""

    name: str
    label: str
    moments: float  # numbers in the recipe's own format
    fixed: float | None = None  # bytes instead, whatever the format
    note: str = ""


OPTIMIZERS = {
    o.name: o
    for o in (
        OptimizerState(name="adamw", label="AdamW", moments=2, note="two averages"),
        OptimizerState(
            name="adam8bit",
            label="8-bit AdamW",
            moments=2,
            fixed=2,
            note="two averages of one byte; scales of blocks (1.6 %) left out",
        ),
        OptimizerState(
            name="adafactor",
            label="Adafactor",
            moments=0,
            fixed=0,
            note="rows and columns of each matrix alone: next to nothing",
        ),
        OptimizerState(name="momentum", label="SGD, momentum", moments=1, note="one average"),
        OptimizerState(name="sgd", label="SGD", moments=0, note="nothing"),
    )
}


def with_optimizer(recipe: Recipe, optimizer: str) -> Recipe:
    """The recipe with another optimizer than AdamW. Raises: KeyError for an unknown one."""
    state = OPTIMIZERS[optimizer]
    moments = recipe.moments / 2 * state.moments if state.fixed is None else state.fixed
    return replace(recipe, moments=moments)


def recipe_of(
    *,
    weights: str,
    gradients: str,
    moments: str,
    master: str = "none",
    accumulator: str = "none",
    optimizer: str = "adamw",
) -> Recipe:
    """A recipe from the formats of its parts. `moments`: of each; `fp8+fp16` where two differ.

    Raises: ValueError naming an unknown format or optimizer.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={optimizer!r} is unknown; choose {', '.join(OPTIMIZERS)}")
    state = OPTIMIZERS[optimizer]
    n_moments = 1 if "+" in moments and state.moments == 2 else state.moments
    return Recipe(
        name="own",
        label="own",
        weights=size(weights),
        gradients=size(gradients),
        master=size(master),
        accumulator=size(accumulator),
        moments=n_moments * size(moments) if state.fixed is None else state.fixed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """One of the figures that are quoted as bytes for each parameter of training."""

    bytes_per_param: float
    counts: str
    ignores: str
    used_by: str
    complete: bool  # weights, gradients, and all of the optimizer's state
    recipes: tuple[str, ...] = ()  # of RECIPES, those that hold as much, counted so


CONVENTIONS = (
    Convention(
        bytes_per_param=8,
        counts="the larger of weights + gradients and of the optimizer's two moments in fp32; or "
        "weights, gradients and moments all in bf16",
        ignores="read as a maximum: the other half. As all in bf16: nothing, but there is no "
        "master copy",
        used_by="accelerate estimate-memory (a maximum over stages, not a sum); torchtune with "
        "pure bf16",
        complete=False,
        recipes=("bf16",),
    ),
    Convention(
        bytes_per_param=10,
        counts="weights in bf16, two moments in fp32",
        ignores="gradients, master copy",
        used_by="How to Scale Your Model, chapter on training",
        complete=False,
    ),
    Convention(
        bytes_per_param=12,
        counts="the optimizer alone: master copy and two moments in fp32; or a checkpoint of fp32 "
        "weights and moments",
        ignores="gradients, and in the first reading the weights",
        used_by="ZeRO's K = 12; nanoGPT's checkpoint (measured 103.4 % of 12 N)",
        complete=False,
    ),
    Convention(
        bytes_per_param=15,
        counts="fp8 weights 1, bf16 gradients 2, fp32 accumulator 4, master copy 4, bf16 moments 4",
        ignores="scales of the fp8 blocks",
        used_by="DeepSeek-V3, in the Ultra-Scale Playbook's table of fp8",
        complete=True,
        recipes=("fp8",),
    ),
    Convention(
        bytes_per_param=16,
        counts="bf16 weights 2, bf16 gradients 2, master copy 4, moments 8; or all in fp32",
        ignores="activations, buffers, fragmentation",
        used_by="ZeRO; Ultra-Scale Playbook; Megatron with fp32; torch.autocast",
        complete=True,
        recipes=("fp32", "autocast", "mixed16"),
    ),
    Convention(
        bytes_per_param=18,
        counts="the same with gradients in fp32: 2 + 4 + 12",
        ignores="activations, buffers, fragmentation",
        used_by="Megatron with bf16; Korthikanti et al. 2022; DeepSpeed's estimators; "
        "ml-engineering (6 + 4 + 8)",
        complete=True,
        recipes=("mixed18",),
    ),
    Convention(
        bytes_per_param=20,
        counts="16-bit gradients and a copy of them in fp32: 2 + 2 + 4 + 12",
        ignores="activations, buffers, fragmentation",
        used_by="Megatron with fp16; Ultra-Scale Playbook and nanotron with an fp32 accumulator",
        complete=True,
        recipes=("mixed20",),
    ),
)


# -- sharding -----------------------------------------------------------------------------------


def sharded_per_param(
    *, weights: float, gradients: float, states: float, stage: int, ranks: int
) -> float:
    """Bytes for each parameter on one of `ranks` devices under ZeRO.

    Stage 0 copies all; 1 splits the optimizer's state, 2 gradients too, 3 weights too.
    Source: Rajbhandari et al. 2020 (arXiv:1910.02054), figure 1. Raises: ValueError for a stage
    that there is not, or no ranks.
    """
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"zero_stage={stage!r} is none of 0, 1, 2, 3; choose one of them")
    _require_count("ranks", ranks)
    held = [weights, gradients, states]
    for i in range(3 - stage, 3):
        held[i] /= ranks
    return sum(held)


def sharded(
    n_params: float,
    *,
    weights: float,
    gradients: float,
    states: float,
    stage: int,
    ranks: int,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    replicated: float = 0,
) -> Bytes:
    """Model states on one device. Tensor and pipeline parallelism split all three first; ZeRO then
    divides among the data-parallel ranks, and not among all devices.

    `replicated`: of the parameters, those that each tensor-parallel device has whole, as norms.
    Raises: ValueError for more of them than there are parameters, or a number of devices below 1.
    """
    _require_count("tensor_parallel", tensor_parallel)
    _require_count("pipeline_parallel", pipeline_parallel)
    if not 0 <= replicated <= n_params:
        raise ValueError(
            f"replicated={replicated!r} is not from 0 to the {n_params:,} parameters; choose fewer"
        )
    each = sharded_per_param(
        weights=weights, gradients=gradients, states=states, stage=stage, ranks=ranks
    )
    split = (n_params - replicated) / tensor_parallel
    return Bytes((split + replicated) / pipeline_parallel * each)


def data_parallel(devices: int, *, tensor_parallel: int = 1, pipeline_parallel: int = 1) -> int:
    """Ranks that ZeRO may split among: devices that are left over to hold the same part.

    Raises: ValueError unless tensor × pipeline divides the devices.
    """
    _require_count("devices", devices)
    _require_count("tensor_parallel", tensor_parallel)
    _require_count("pipeline_parallel", pipeline_parallel)
    ranks, rest = divmod(devices, tensor_parallel * pipeline_parallel)
    if rest:
        raise ValueError(
            f"devices={devices} is no multiple of tensor_parallel × pipeline_parallel="
            f"{tensor_parallel * pipeline_parallel}; choose a multiple"
        )
    return ranks


def megatron_per_param(param: str, gradient: str, *, distributed: bool, ranks: int) -> float:
    """Bytes for each parameter in Megatron-LM, with and without its distributed optimizer.

    With 16-bit gradients a copy of them in fp32 is made; the distributed optimizer splits that
    copy, the master copy and the moments, and keeps weights and gradients whole. Where parameters
    are in fp32 there is no master copy.
    Source: Megatron-LM, docs/user-guide/features/dist_optimizer.md.
    """
    _require_count("dp", ranks)
    whole = size(param) + size(gradient)
    split = 8.0
    if param != "fp32":
        split += 4
    if gradient != "fp32":
        split += 4
    return whole + (split / ranks if distributed else split)


def deepspeed(
    n_params: float,
    *,
    estimator: str,
    ranks: int,
    largest_layer: float = 0,
    offload: str = "none",
) -> Bytes:
    """Model states on one GPU as DeepSpeed's own estimators say: states alone, without
    activations, buffers or fragmentation.

    `estimator`: `zero2_docs` (4P + 16P/N, as documented), `zero2_head` (2P + 18P/N, as the code has
    it since pull request 5099), `zero3` (4 bytes for the largest layer, 18P/N). `offload`: what
    stands in CPU memory instead: none, optimizer, or params (weights too).
    Source: DeepSpeed, docs/code-docs/source/memory.rst and runtime/zero/stage{_1_and_2,3}.py.
    Raises: ValueError naming the estimators, or what may be offloaded.
    """
    _require_count("gpus", ranks)
    if offload not in ("none", "optimizer", "params"):
        raise ValueError(f"offload={offload!r} is unknown; choose none, optimizer or params")
    p, n = n_params, ranks
    match estimator:
        case "zero2_docs" | "zero2":
            return Bytes(2 * p if offload != "none" else 4 * p + 16 * p / n)
        case "zero2_head":
            return Bytes(2 * p if offload != "none" else 2 * p + 18 * p / n)
        case "zero1":
            return Bytes(4 * p if offload != "none" else 4 * p + 12 * p / n)
        case "zero3":
            split = {"none": 18.0, "optimizer": 2.0, "params": 0.0}[offload]
            return Bytes(4 * largest_layer + split * p / n)
    raise ValueError(
        f"estimator={estimator!r} is unknown; choose zero1, zero2_docs, zero2_head or zero3"
    )


def largest_of_stages(sizes: Mapping[str, float]) -> float:
    """What accelerate calls the memory of training: the largest of its stages, and not their sum.

    KNOWN WRONG, kept to be shown beside the sum: for mixed precision it says half of what is held.
    Source: accelerate, commands/estimate.py, `estimate_training_usage`.
    """
    return max(sizes.values())


def accelerate_stages(weights: str) -> dict[str, float]:
    """Bytes for each parameter in each of accelerate's stages of training: weights in `fp32`, or in
    16 bits beside fp32 (`fp32+fp16`).

    Source: accelerate, commands/estimate.py, `estimate_training_usage`.
    """
    wide = size("fp32")
    if size(weights) == wide:
        return {"model": wide, "gradients": wide, "optimizer": 2 * wide, "step": 4 * wide}
    narrow = size(weights.split("+")[-1])
    return {"model": wide, "gradients": wide + narrow, "optimizer": 2 * wide, "step": 2 * wide}


# -- adapters -----------------------------------------------------------------------------------


def adapted(n_params: float, n_adapter: float, *, base_bytes: float, recipe: Recipe) -> Bytes:
    """States while adapters train: a frozen base, and the recipe's bytes for the adapters alone.

    `base_bytes`: of each frozen weight, with its share of scales (2 for bf16, 0.5 to 0.57 for NF4).
    """
    return Bytes(n_params * base_bytes + n_adapter * recipe.bytes_per_param)


def _require_count(what: str, value: float) -> None:
    if not (isinstance(value, (int, float)) and math.isfinite(value)) or value < 1:
        raise ValueError(f"{what}={value!r} is below 1; choose 1 or more")
