"""Settings as frozen values: what is to be run, validated once, named by a hash."""

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Self

SPECIMENS = ("playground", "digits", "addition", "pydocs", "text")

PROBLEMS = ("circle", "xor", "gauss", "spiral")
FEATURES = ("x", "y", "x2", "y2", "xy", "sinx", "siny")
ACTIVATIONS = ("tanh", "relu", "sigmoid", "linear")
OPTIMIZERS = ("sgd", "momentum", "adamw")
PRECISIONS = ("fp32", "fp64")
MIXED_PRECISIONS = ("fp32", "bf16", "fp16")  # of torch runs: autocast, fp16 with loss scaling
ARCHITECTURES = ("gpt", "llama")
ATTENTIONS = ("flash", "explicit")

MAX_DEPTH = 6
MAX_WIDTH = 8
MAX_NOISE = 0.5
MAX_BATCH = 30
MAX_EPOCHS = 5000
TEXT_ID = re.compile(r"[0-9a-f]{32}")
MAX_LAYERS = 12
MAX_D_MODEL = 512
MAX_CONTEXT = 512
MAX_STEPS = 20_000
MAX_SEED = 2**31 - 1
MAX_PROMPT = 50_000  # characters
MAX_NEW_TOKENS = 1024
MAX_ANSWER_CONTEXT = 8192
MODEL = re.compile(r"[a-z0-9]{2,20}|[0-9a-f]{16}/\d{8}-\d{6}-[0-9a-f]{6}")
WEIGHT_FORMATS = ("fp32", "bf16", "int8", "int4", "file")  # file: as the model's own file has it
PUBLISHED = ("smollm2",)  # models that have such a file: the keys of core.pretrained.PRETRAINED
SWEPT: dict[str, tuple[str | int | bool, ...]] = {  # what a sweep of answers varies, and its points
    "weight_format": WEIGHT_FORMATS,
    "batch_size": (1, 2, 4, 8, 16, 32),
    "cache": (True, False),
    "context": (32, 64, 128, 256, 512, 1024, 2048),
}
WORKS = ("train", "prefill", "decode")  # what is measured of a model on the ladder
LADDER_FORMATS = ("fp32", "bf16", "int8", "int4")  # of weights; a training step has the first two
RUNGS = (  # parameters, about: core.ladder has the shapes
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    12_000_000,
    30_000_000,
    60_000_000,
    135_000_000,
    350_000_000,
)
MAX_RUNG = 10_000_000_000


def _require(ok: bool, what: str, value: object, rule: str, remedy: str) -> None:
    if not ok:
        raise ValueError(f"{what}={value!r} {rule}; {remedy}")


def _require_one_of(what: str, value: object, allowed: tuple[str, ...]) -> None:
    _require(value in allowed, what, value, "is unknown", f"choose one of {', '.join(allowed)}")


def _require_list(what: str, value: object, remedy: str) -> None:
    _require(isinstance(value, tuple), what, value, "is not a list", remedy)


def _require_whole(what: str, value: object, low: int, high: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    _require(
        whole and low <= value <= high,  # type: ignore[operator]
        what,
        value,
        f"is not a whole number from {low} to {high}",
        f"choose one from {low} to {high}",
    )


def _require_number(what: str, value: object, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    _require(
        number and low <= value <= high,  # type: ignore[operator]
        what,
        value,
        f"is not a number from {low:g} to {high:g}",
        f"choose one from {low:g} to {high:g}",
    )


def _require_bool(what: str, value: object) -> None:
    _require(isinstance(value, bool), what, value, "is neither true nor false", "choose one")


def _require_model(what: str, value: object) -> None:
    _require(
        isinstance(value, str) and MODEL.fullmatch(value) is not None,
        what,
        value,
        "is not the name of a model",
        "choose smollm2, or a run by spec_id/attempt",
    )


def _require_text(what: str, value: object, *, empty: bool = False) -> None:
    _require(isinstance(value, str), what, value, "is not a text", "write one")
    assert isinstance(value, str)
    _require(empty or bool(value), what, value, "is empty", "write at least one character")
    if len(value) > MAX_PROMPT:
        raise ValueError(
            f"{what} has {len(value):,} characters, more than {MAX_PROMPT:,}; shorten it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What every run is told, be it of training or of inference.

    Raises: ValueError naming the field, its value, the rule and a remedy.
    """

    purpose: ClassVar[str]  # train, generate or measure
    specimen: ClassVar[str]  # what is trained, or how it is used

    def __post_init__(self) -> None:
        self._check()
        for field in dataclasses.fields(self):  # 1 and 1.0 are one setting and have one spec_id
            if field.type in ("float", float):
                object.__setattr__(self, field.name, float(getattr(self, field.name)))

    def _check(self) -> None:
        """Its own rules."""

    @property
    def differences(self) -> dict[str, Any]:
        """The fields that differ from the specimen's defaults, as JSON can hold them."""
        named = {} if self.specimen == "playground" else {"specimen": self.specimen}
        return named | {
            field.name: _plain(value)
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    def to_json(self) -> dict[str, Any]:
        fields = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"specimen": self.specimen, **fields}

    @property
    def spec_id(self) -> str:
        """Hash of the settings that differ from the defaults: a new field leaves old ids alone."""
        text = json.dumps({self.purpose: self.differences}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        """The spec of any specimen; the playground's where none is named.

        Raises: ValueError for a field that does not exist or a value out of range, and for a
        specimen that is not one of this class.
        """
        _require(
            isinstance(record, dict), "settings", record, "is not an object", "give its fields"
        )
        specimen = record.get("specimen", "playground")
        kinds = {name: kind for name, kind in SPEC_KINDS.items() if issubclass(kind, cls)}
        _require_one_of("specimen", specimen, tuple(kinds))
        kind = kinds[specimen]
        known = {f.name for f in dataclasses.fields(kind)}
        for name in record:
            _require(
                name in known or name == "specimen",
                "setting",
                name,
                "is unknown",
                f"use {', '.join(sorted(known))}",
            )
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record.items()
            if name != "specimen"
        }
        return kind(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec(RunSpec):
    """What every training run is told; a specimen adds its own fields and defaults."""

    purpose: ClassVar[str] = "train"

    optimizer: str
    learning_rate: float
    batch_size: int  # examples per update
    precision: str  # of the numbers the run computes with
    seed: int = 1  # draws data, weights and order from one stream

    def __post_init__(self) -> None:
        _require_one_of("optimizer", self.optimizer, OPTIMIZERS)
        _require_number("learning_rate", self.learning_rate, 1e-6, 10)
        _require_whole("seed", self.seed, 0, MAX_SEED)
        RunSpec.__post_init__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundSpec(Spec):
    """A small network on a 2-D problem. Source: ranges and defaults of TensorFlow Playground."""

    specimen: ClassVar[str] = "playground"

    problem: str = "circle"  # which 2-D data set
    noise: float = 0.0  # 0 to 0.5, as the generators define it
    features: tuple[str, ...] = ("x", "y")  # inputs of the network, in this order
    hidden: tuple[int, ...] = (4, 2)  # neurons of each hidden layer
    activation: str = "tanh"  # of the hidden layers; the output is always tanh
    optimizer: str = "sgd"
    learning_rate: float = 0.03
    batch_size: int = 10
    precision: str = "fp32"
    n_epochs: int = 500  # the run ends after so many passes over the data

    def _check(self) -> None:
        _require_one_of("problem", self.problem, PROBLEMS)
        _require_number("noise", self.noise, 0, MAX_NOISE)
        among_features = f"choose among {', '.join(FEATURES)}"
        _require_list("features", self.features, among_features)
        for name in self.features:
            _require_one_of("feature", name, FEATURES)
        _require(
            0 < len(self.features) == len(set(self.features)),
            "features",
            self.features,
            "must be at least one, each once",
            among_features,
        )
        _require_list("hidden", self.hidden, f"choose 0 to {MAX_DEPTH} widths")
        _require(
            len(self.hidden) <= MAX_DEPTH,
            "hidden",
            self.hidden,
            f"has more than {MAX_DEPTH} layers",
            f"choose 0 to {MAX_DEPTH}",
        )
        for width in self.hidden:
            _require_whole("width", width, 1, MAX_WIDTH)
        _require_one_of("activation", self.activation, ACTIVATIONS)
        _require_whole("batch_size", self.batch_size, 1, MAX_BATCH)
        _require_one_of("precision", self.precision, PRECISIONS)
        _require_whole("n_epochs", self.n_epochs, 1, MAX_EPOCHS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitsSpec(Spec):
    """A perceptron on 1,797 handwritten digits of 8 x 8 pixels, ten classes, cross-entropy."""

    specimen: ClassVar[str] = "digits"

    n_layer: int = 2  # hidden layers
    d_model: int = 64  # neurons of each
    activation: str = "relu"
    optimizer: str = "adamw"
    learning_rate: float = 0.003
    batch_size: int = 32
    precision: str = "fp32"
    n_epochs: int = 20

    def _check(self) -> None:
        _require_whole("n_layer", self.n_layer, 0, MAX_LAYERS)
        _require_whole("d_model", self.d_model, 1, MAX_D_MODEL)
        _require_one_of("activation", self.activation, ACTIVATIONS)
        _require_whole("batch_size", self.batch_size, 1, 512)
        _require_one_of("precision", self.precision, MIXED_PRECISIONS)
        _require_whole("n_epochs", self.n_epochs, 1, MAX_EPOCHS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerSpec(Spec):
    """A decoder-only character transformer: what the three texts share."""

    n_layer: int = 2
    d_model: int = 64  # width of the residual stream
    n_head: int = 4
    architecture: str = "gpt"  # LayerNorm, GELU, learned positions; or RMSNorm, SwiGLU, RoPE
    attention: str = "flash"  # or explicit: scores and probabilities as tensors of their own
    seq_len: int = 64  # characters the model sees at once
    accumulation: int = 1  # micro-batches per update; batch_size examples each
    checkpointing: bool = False  # keep only each block's input, compute the rest again in backward
    dropout: float = 0.0
    optimizer: str = "adamw"
    learning_rate: float = 0.003
    batch_size: int = 32
    precision: str = "fp32"
    n_steps: int = 2000

    def _check(self) -> None:
        _require_whole("n_layer", self.n_layer, 1, MAX_LAYERS)
        _require_whole("d_model", self.d_model, 8, MAX_D_MODEL)
        _require_whole("n_head", self.n_head, 1, 64)
        _require(
            self.d_model % (2 * self.n_head) == 0,
            "d_model",
            self.d_model,
            f"does not split into n_head={self.n_head} heads of an even width",
            f"choose {2 * self.n_head * max(1, round(self.d_model / (2 * self.n_head)))}",
        )
        _require_one_of("architecture", self.architecture, ARCHITECTURES)
        _require_one_of("attention", self.attention, ATTENTIONS)
        _require_whole("seq_len", self.seq_len, 8, MAX_CONTEXT)
        _require_whole("accumulation", self.accumulation, 1, 16)
        _require_bool("checkpointing", self.checkpointing)
        _require_number("dropout", self.dropout, 0, 0.5)
        _require_whole("batch_size", self.batch_size, 1, 512)
        _require_one_of("precision", self.precision, MIXED_PRECISIONS)
        _require_whole("n_steps", self.n_steps, 1, MAX_STEPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionSpec(TransformerSpec):
    """Two-digit sums, `12+34=046`; the loss counts the answer's three characters only."""

    specimen: ClassVar[str] = "addition"

    seq_len: int = 8  # all of a sum but its last character
    batch_size: int = 128
    n_steps: int = 1500

    def _check(self) -> None:
        TransformerSpec._check(self)
        _require(self.seq_len == 8, "seq_len", self.seq_len, "does not fit a sum", "leave it at 8")


@dataclass(frozen=True, slots=True, kw_only=True)
class PydocsSpec(TransformerSpec):
    """The documentation text inside every Python, character by character."""

    specimen: ClassVar[str] = "pydocs"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTextSpec(TransformerSpec):
    """A visitor's own text, known by the name under which it is kept."""

    specimen: ClassVar[str] = "text"

    text: str = ""  # core.texts.keep

    def _check(self) -> None:
        TransformerSpec._check(self)
        _require(
            isinstance(self.text, str) and TEXT_ID.fullmatch(self.text) is not None,
            "text",
            self.text,
            "is not the name of a kept text",
            "paste or upload a text",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthsSpec(TransformerSpec):
    """Not a training run: one answer and one training step at each of several depths, for their
    peak memory. Tokens are drawn at random, since no byte depends on which they are.
    """

    specimen: ClassVar[str] = "depths"

    n_layer: int = MAX_LAYERS  # the greatest depth
    vocab_size: int = 64

    def _check(self) -> None:
        TransformerSpec._check(self)
        _require_whole("vocab_size", self.vocab_size, 2, 1024)

    @classmethod
    def of(cls, spec: TransformerSpec, vocab_size: int) -> "DepthsSpec":
        """The same model and step at every depth."""
        same = {
            f.name: getattr(spec, f.name)
            for f in dataclasses.fields(TransformerSpec)
            if f.name not in ("n_layer", "n_steps", "learning_rate", "seed")
        }
        return cls(**same, vocab_size=vocab_size)

    @property
    def depths(self) -> tuple[int, ...]:
        return tuple(d for d in (1, 2, 3, 4, 6, 8, 10, 12) if d <= self.n_layer)

    def at(self, depth: int) -> "DepthsSpec":
        return dataclasses.replace(self, n_layer=depth)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneSpec(Spec):
    """A few updates of a pretrained model on a text that it is given, all weights or LoRA."""

    specimen: ClassVar[str] = "finetune"

    model: str = "smollm2"  # name in core.pretrained
    text: str = (
        "The water cycle begins when the sun warms the sea. Water rises as vapour, cools, and "
        "falls as rain or snow. Rivers carry it back to the sea, and the cycle begins again."
    )
    seq_len: int = 32  # tokens of the text that an update reads, from its beginning
    lora_rank: int = 0  # 0: every weight is trained; else rank of each layer's added product
    optimizer: str = "adamw"
    learning_rate: float = 1e-5
    batch_size: int = 1
    precision: str = "fp32"
    n_steps: int = 1
    threads: int = 1

    def _check(self) -> None:
        _require_model("model", self.model)
        _require_whole("threads", self.threads, 1, 256)
        _require_text("text", self.text)
        _require_whole("seq_len", self.seq_len, 2, MAX_CONTEXT)
        _require_whole("lora_rank", self.lora_rank, 0, 64)
        _require_whole("batch_size", self.batch_size, 1, 16)
        _require_one_of("precision", self.precision, ("fp32", "bf16"))
        _require_whole("n_steps", self.n_steps, 1, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateSpec(RunSpec):
    """One prompt to a model, and the tokens it answers with."""

    purpose: ClassVar[str] = "generate"
    specimen: ClassVar[str] = "answer"

    model: str = "smollm2"  # name in core.pretrained, a shipped recording's, or spec_id/attempt
    prompt: str = "The water cycle begins when"
    chat: bool = False  # the prompt is a turn, put into the model's chat template
    history: tuple[str, ...] = ()  # of a chat: earlier turns, the visitor's and the model's
    max_new_tokens: int = 32
    weight_format: str = "fp32"
    cache: bool = True  # keys and values kept; else every token reads the whole text again
    context: int = 512  # tokens that the cache has room for: prompt and answer
    batch_size: int = 1  # sequences of the same prompt at once
    temperature: float = 0.0  # 0: always the likeliest token
    top_k: int = 0  # draw among so many of the likeliest; 0: among all
    top_p: float = 1.0  # draw among the fewest whose probabilities reach this sum
    seed: int = 1
    threads: int = 1
    looks: int = 2  # trips opened op by op afterwards: the prefill, then decodes

    def _check(self) -> None:
        _require_model("model", self.model)
        _require_text("prompt", self.prompt)
        _require_bool("chat", self.chat)
        _require_list("history", self.history, "give the earlier turns")
        for turn in self.history:
            _require_text("history", turn, empty=True)
        _require(
            self.chat or not self.history,
            "history",
            self.history,
            "belongs to a chat",
            "set chat, or leave it out",
        )
        _require_whole("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        _require_one_of("weight_format", self.weight_format, WEIGHT_FORMATS)
        _require_bool("cache", self.cache)
        _require_whole("context", self.context, 8, MAX_ANSWER_CONTEXT)
        _require_whole("batch_size", self.batch_size, 1, 64)
        _require_number("temperature", self.temperature, 0, 5)
        _require_whole("top_k", self.top_k, 0, 1_000_000)
        _require_number("top_p", self.top_p, 0.001, 1)
        _require_whole("seed", self.seed, 0, MAX_SEED)
        _require_whole("threads", self.threads, 1, 256)
        _require_whole("looks", self.looks, 0, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSweepSpec(RunSpec):
    """Not one answer: the time of a token, and what differs besides, at each value of one setting.

    Every point reads the same text: the prompt, and what the fp32 model writes after it. Over
    `context` a point is a cache of so many tokens, filled with the prompt over and over.
    """

    purpose: ClassVar[str] = "generate"
    specimen: ClassVar[str] = "answers"

    over: str = "weight_format"  # a key of SWEPT
    model: str = "smollm2"
    prompt: str = "The water cycle begins when"
    chat: bool = False
    history: tuple[str, ...] = ()
    max_new_tokens: int = 16  # decodes of one measurement; each point is measured several times
    weight_format: str = "fp32"
    cache: bool = True
    context: int = 512
    batch_size: int = 1
    threads: int = 1

    def _check(self) -> None:
        _require_one_of("over", self.over, tuple(SWEPT))
        self._answer()

    @classmethod
    def of(cls, spec: "GenerateSpec", over: str, max_new_tokens: int = 16) -> "AnswerSweepSpec":
        """The answer's settings, one of them varied."""
        _require_one_of("over", over, tuple(SWEPT))
        same = {
            f.name: getattr(spec, f.name)
            for f in dataclasses.fields(cls)
            if f.name not in ("over", "max_new_tokens", over)
        }
        return cls(over=over, max_new_tokens=max_new_tokens, **same)

    @property
    def points(self) -> tuple[str | int | bool, ...]:
        """Values of the setting; a model made for a short context has fewer of them."""
        has_file = self.over != "weight_format" or self.model in PUBLISHED
        return tuple(p for p in SWEPT[self.over] if has_file or p != "file")

    def points_within(self, max_seq_len: int) -> tuple[str | int | bool, ...]:
        """The points that a model made for at most so many tokens can have."""
        if self.over != "context":
            return self.points
        found = tuple(p for p in self.points if int(p) <= max_seq_len)
        return found or (max_seq_len,)

    def at(self, point: str | int | bool) -> "GenerateSpec":
        """The answer of one point."""
        return self._answer(**{self.over: point})

    def _answer(self, **changes: Any) -> "GenerateSpec":
        same: dict[str, Any] = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "over"
        }
        return GenerateSpec(looks=0, **(same | changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSpec(RunSpec):
    """No answer: what this machine does in a second, from which latency is predicted."""

    purpose: ClassVar[str] = "generate"
    specimen: ClassVar[str] = "calibration"

    weight_formats: tuple[str, ...] = WEIGHT_FORMATS
    threads: int = 1

    def _check(self) -> None:
        _require_list("weight_formats", self.weight_formats, "give some")
        for name in self.weight_formats:
            _require_one_of("weight_format", name, WEIGHT_FORMATS)
        _require(
            0 < len(self.weight_formats) == len(set(self.weight_formats)),
            "weight_formats",
            self.weight_formats,
            "must be at least one, each once",
            f"choose among {', '.join(WEIGHT_FORMATS)}",
        )
        _require_whole("threads", self.threads, 1, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderSpec(RunSpec):
    """Not one model but a ladder of them, from small to large: bytes and seconds of a training
    step, of reading a prompt and of a further token, on each rung that fits memory and budget.

    Weights are drawn at random, since neither bytes nor seconds depend on them.
    """

    purpose: ClassVar[str] = "measure"
    specimen: ClassVar[str] = "ladder"

    works: tuple[str, ...] = WORKS
    formats: tuple[str, ...] = LADDER_FORMATS
    rungs: tuple[int, ...] = RUNGS  # parameters, about, smallest first
    budget_s: float = 60.0  # no point is begun that would end later
    batch_size: int = 4  # sequences of a training step; an answer is one
    seq_len: int = 128  # tokens of each, of the prompt, and of the context of a further token
    threads: int = 1

    def _check(self) -> None:
        for what, values, allowed in (
            ("works", self.works, WORKS),
            ("formats", self.formats, LADDER_FORMATS),
        ):
            _require_list(what, values, "give some")
            for value in values:
                _require_one_of(what, value, allowed)
            self._require_each_once(what, values, f"choose among {', '.join(allowed)}")
        _require_list("rungs", self.rungs, "give some")
        for n in self.rungs:
            _require_whole("rung", n, 50_000, MAX_RUNG)
        self._require_each_once("rungs", self.rungs, "choose some numbers of parameters")
        _require(
            list(self.rungs) == sorted(self.rungs),
            "rungs",
            self.rungs,
            "do not rise",
            "give the smallest first",
        )
        _require_number("budget_s", self.budget_s, 1, 800)
        _require_whole("batch_size", self.batch_size, 1, 64)
        _require_whole("seq_len", self.seq_len, 8, 2048)
        _require_whole("threads", self.threads, 1, 256)
        _require(
            bool(self.points),
            "formats",
            self.formats,
            "are none that a training step has",
            "choose fp32 or bf16, or another work",
        )

    @staticmethod
    def _require_each_once(what: str, values: tuple[Any, ...], remedy: str) -> None:
        once = 0 < len(values) == len(set(values))
        _require(once, what, values, "must be at least one, each once", remedy)

    @property
    def points(self) -> tuple[tuple[int, str, str], ...]:
        """(rung, work, format) of every point in the order of measuring: rung by rung, formats in
        turn, so that what a busy machine spoils is spread over them.
        """
        return tuple(
            (rung, work, name)
            for rung in self.rungs
            for trains in (True, False)
            for name in self.formats
            for work in self.works
            if (work == "train") == trains and (not trains or name in MIXED_PRECISIONS)
        )


SPEC_KINDS: dict[str, type[RunSpec]] = {
    kind.specimen: kind
    for kind in (
        PlaygroundSpec,
        DigitsSpec,
        AdditionSpec,
        PydocsSpec,
        OwnTextSpec,
        DepthsSpec,
        FinetuneSpec,
        GenerateSpec,
        AnswerSweepSpec,
        CalibrationSpec,
        LadderSpec,
    )
}
TrainSpec = PlaygroundSpec


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
