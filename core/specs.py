"""Settings as frozen values: what is to be run, validated once, named by a hash."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

PROBLEMS = ("circle", "xor", "gauss", "spiral")
FEATURES = ("x", "y", "x2", "y2", "xy", "sinx", "siny")
ACTIVATIONS = ("tanh", "relu", "sigmoid", "linear")
OPTIMIZERS = ("sgd", "momentum", "adamw")
PRECISIONS = ("fp32", "fp64")

MAX_DEPTH = 6
MAX_WIDTH = 8
MAX_NOISE = 0.5
MAX_BATCH = 30
MAX_EPOCHS = 5000
MAX_SEED = 2**31 - 1


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSpec:
    """One training run of a small network on a 2-D problem; everything that decides its numbers.

    Raises: ValueError naming the field, its value, the rule and a remedy.
    Source: ranges and defaults of TensorFlow Playground.
    """

    problem: str = "circle"  # which 2-D data set
    noise: float = 0.0  # 0 to 0.5, as the generators define it
    features: tuple[str, ...] = ("x", "y")  # inputs of the network, in this order
    hidden: tuple[int, ...] = (4, 2)  # neurons of each hidden layer
    activation: str = "tanh"  # of the hidden layers; the output is always tanh
    optimizer: str = "sgd"
    learning_rate: float = 0.03
    batch_size: int = 10  # examples per update
    precision: str = "fp32"  # of every number the run computes with
    seed: int = 1  # draws the data, then the weights, from one stream
    n_epochs: int = 500  # the run ends after so many passes over the data

    def __post_init__(self) -> None:
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
        _require_one_of("optimizer", self.optimizer, OPTIMIZERS)
        _require_number("learning_rate", self.learning_rate, 1e-6, 10)
        _require_whole("batch_size", self.batch_size, 1, MAX_BATCH)
        _require_one_of("precision", self.precision, PRECISIONS)
        _require_whole("seed", self.seed, 0, MAX_SEED)
        _require_whole("n_epochs", self.n_epochs, 1, MAX_EPOCHS)
        for field in ("noise", "learning_rate"):  # 1 and 1.0 are one setting and have one spec_id
            object.__setattr__(self, field, float(getattr(self, field)))

    @property
    def differences(self) -> dict[str, Any]:
        """The fields that differ from the defaults, as JSON can hold them."""
        return {
            field.name: _plain(value)
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    def to_json(self) -> dict[str, Any]:
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "TrainSpec":
        """Raises: ValueError for a field that does not exist or a value out of range."""
        _require(
            isinstance(record, dict), "settings", record, "is not an object", "give its fields"
        )
        known = {f.name for f in dataclasses.fields(cls)}
        for name in record:
            _require(
                name in known, "setting", name, "is unknown", f"use {', '.join(sorted(known))}"
            )
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record.items()
        }
        return cls(**values)

    @property
    def spec_id(self) -> str:
        """Hash of the settings that differ from the defaults: a new field leaves old ids alone."""
        text = json.dumps({"train": self.differences}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
