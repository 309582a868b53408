"""Random small models with the step that trains them, for tests of the transformer spine."""

import random
from dataclasses import dataclass

import torch

from core.engine.model_step import Ready
from core.engine.models import Classifier, Transformer
from core.memory import TorchStep
from core.ops import Train
from core.shapes import ATTENTIONS, MLPS, NORMS, POSITIONS, MlpShape, TransformerShape
from core.units import BF16, FP16

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
FORMATS = {"fp32": None, "bf16": BF16, "fp16": FP16}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything that decides the bytes of a step."""

    shape: TransformerShape | MlpShape
    batch_size: int
    seq_len: int = 1
    precision: str = "fp32"
    checkpointing: bool = False
    optimizer: str = "sgd"
    fused: bool = True
    accumulation: int = 1

    @property
    def workload(self) -> Train:
        return Train(
            batch_size=self.batch_size,
            seq_len=self.seq_len,
            autocast=FORMATS[self.precision],
            checkpointing=self.checkpointing,
        )

    @property
    def step(self) -> TorchStep:
        return TorchStep(
            shape=self.shape,
            workload=self.workload,
            optimizer=self.optimizer,
            fused=self.fused,
            accumulation=self.accumulation,
        )

    def model(self) -> Transformer | Classifier:
        generator = torch.Generator().manual_seed(0)
        if isinstance(self.shape, MlpShape):
            return Classifier(self.shape, generator)
        return Transformer(self.shape, generator, checkpointing=self.checkpointing)

    def batch(self, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        if isinstance(self.shape, MlpShape):
            x = torch.rand(self.batch_size, self.shape.d_in, generator=generator)
            y = torch.randint(0, self.shape.d_out, (self.batch_size,), generator=generator)
            return x, y
        size = (self.batch_size, self.seq_len)
        vocab_size = self.shape.vocab_size
        x = torch.randint(0, vocab_size, size, generator=generator)
        return x, torch.randint(0, vocab_size, size, generator=generator)

    def autocast(self) -> torch.autocast:
        dtype = AUTOCAST[self.precision]
        return torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None)

    def ready(self, n_steps: int = 1) -> Ready:
        """The model after some steps, so that the optimizer's state is there."""
        model = self.model()
        params = list(model.parameters())
        if self.optimizer == "adamw":
            optimizer: torch.optim.Optimizer = torch.optim.AdamW(params, fused=self.fused)
        else:
            momentum = 0.9 if self.optimizer == "momentum" else 0
            optimizer = torch.optim.SGD(params, lr=0.01, momentum=momentum, fused=self.fused)
        ready = Ready(
            model=model,
            optimizer=optimizer,
            batches=[self.batch(i) for i in range(self.accumulation)],
            autocast=AUTOCAST[self.precision],
            # A scale at which the first step does not overflow: an overflow makes no state.
            scaler=torch.amp.GradScaler("cpu", init_scale=256, enabled=self.precision == "fp16"),
        )
        for _ in range(n_steps):
            ready.run(lambda phase, op: None)
        return ready

    def __str__(self) -> str:
        how = [self.precision, self.optimizer + "-fused" * self.fused]
        how += ["checkpointed"] * self.checkpointing
        how += [f"{self.batch_size}x{self.seq_len}x{self.accumulation}"]
        if isinstance(self.shape, MlpShape):
            return "-".join(["classifier", self.shape.activation, *how])
        s = self.shape
        kind = [s.norm, s.mlp, s.positions, "tied" * s.tied, "bias" * s.bias, s.attention]
        kind += ["dropout" * (s.dropout > 0), f"{s.n_head}/{s.n_kv_head}"]
        return "-".join(x for x in kind + how if x)


def random_settings(n: int, seed: int, **fixed: object) -> list[Setting]:
    """Settings whose choices are all drawn independently, awkward sizes among them."""
    rng = random.Random(seed)
    settings = []
    for _ in range(n):
        n_head = rng.choice([1, 2, 4])
        d_head = rng.choice([2, 4, 6, 16])
        shape = TransformerShape(
            vocab_size=rng.choice([7, 65, 300]),
            n_layer=rng.choice([1, 2, 3]),
            d_model=rng.choice([n_head * d_head, 8, 20]),
            n_head=n_head,
            n_kv_head=rng.choice([k for k in (1, 2, 4) if n_head % k == 0]),
            d_head=d_head,
            d_ff=rng.choice([5, 32, 100]),
            max_seq_len=33,
            norm=rng.choice(NORMS),
            mlp=rng.choice(MLPS),
            positions=rng.choice(POSITIONS),
            tied=rng.random() < 0.5,
            bias=rng.random() < 0.5,
            attention=rng.choice(ATTENTIONS),
            dropout=rng.choice([0.0, 0.1]),
        )
        drawn = {
            "shape": shape,
            "batch_size": rng.choice([1, 2, 5]),
            "seq_len": rng.choice([1, 2, 9, 33]),
            "precision": rng.choice(list(AUTOCAST)),
            "checkpointing": rng.random() < 0.4,
            "optimizer": rng.choice(["sgd", "momentum", "adamw"]),
            "fused": rng.random() < 0.5,
            "accumulation": rng.choice([1, 1, 2]),
        }
        settings.append(Setting(**(drawn | fixed)))
    return settings


def classifiers(**fixed: object) -> list[Setting]:
    return [
        Setting(
            **{
                "shape": MlpShape(
                    d_in=64,
                    hidden=hidden,
                    d_out=10,
                    activation=activation,
                    output_activation="linear",
                    loss="cross_entropy",
                ),
                "batch_size": 12,
                "precision": precision,
                "optimizer": optimizer,
            }
            | fixed
        )
        for activation, hidden, optimizer in (
            ("relu", (32, 16), "adamw"),
            ("tanh", (8,), "momentum"),
            ("sigmoid", (5, 5, 5), "sgd"),
            ("linear", (7, 9), "adamw"),
            ("relu", (), "sgd"),
        )
        for precision in AUTOCAST
    ]
