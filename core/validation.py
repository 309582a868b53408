"""`python -m core validate FILE.csv`: what people reported beside what is predicted of it.

Every case is put into the functions the pages call, by general rules over its fields; none is
tuned. Its class says what the prediction is worth:

- full prediction: everything that counts is in it, as this project's own code would hold it
- lower bound: of a memory or a time, parts that must be there (states, weights, reading them once)
- ceiling: of a rate, what no device exceeds
- not enough inputs: what is missing is said, and nothing is predicted
"""

import csv
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import cache, states, utilisation
from core.blocks import stored_bytes
from core.catalog import Device, Model, find_device, find_model
from core.conformance.answers import Inputs, Unsupported
from core.conformance.models import cached_shape
from core.counts import counts
from core.footprints import Training, training
from core.quantised import weight_formats, weights_bytes
from core.roofline import ceiling_tokens_per_s, decode_flops
from core.sizes import Bytes

COLUMNS = ("id", "kind", "config_json", "reported", "unit", "source")
FULL, LOWER, CEILING, NONE = "full prediction", "lower bound", "ceiling", "not enough inputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A report, and what is predicted of it. Numbers are in the report's own unit."""

    id: str
    kind: str
    what: str  # the model and how it ran, in a few words
    predicted: float | None
    reported: float | None
    unit: str
    kind_of_prediction: str  # one of the four classes
    says: str  # what is in the prediction, or what is missing
    source: str

    @property
    def ratio(self) -> float | None:
        """predicted / reported."""
        if self.predicted is None or not self.reported:
            return None
        return self.predicted / self.reported

    @property
    def holds(self) -> bool | None:
        """Whether a bound is one; None for a full prediction, and where there is none."""
        if self.ratio is None or self.kind_of_prediction in (FULL, NONE):
            return None
        return self.ratio <= 1 if self.kind_of_prediction == LOWER else self.ratio >= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Predicted:
    """In base units: bytes, seconds, tokens a second, per cent, hours, dollars."""

    value: Bytes | float
    kind: str
    says: str


# -- reading a case -----------------------------------------------------------------------------


class _Case(Inputs):
    """The fields of a case, and what can be told from them."""

    def words(self, *names: str) -> str:
        """The texts of some fields together, in small letters."""
        values = (self._values.get(name) for name in names)
        return " ".join(str(v) for v in values if isinstance(v, str)).lower()

    @property
    def model(self) -> Model | None:
        """Of the catalogue, the words of a quantisation or a remark after its name left out."""
        text = self._values.get("model")
        if not isinstance(text, str):
            return None
        words = re.sub(r"\(.*?\)", "", text).split()
        for n in range(len(words), 0, -1):
            try:
                return find_model(" ".join(words[:n]))
            except LookupError:
                continue
        return None

    @property
    def n_params(self) -> float:
        """Given, or the model's, or the number in a name such as 7B. Raises: Unsupported."""
        if self.has("params"):
            return self.number("params")
        if self.model is not None:
            return counts(self.model.shape).total
        found = re.fullmatch(r"(\d+(?:\.\d+)?)b", self.words("model").strip())
        if found:
            return float(found[1]) * 1e9
        raise Unsupported("the number of parameters is not given")

    def device(self) -> tuple[int, Device]:
        """How many, and which. Raises: Unsupported."""
        text = str(self._values.get("gpu") or self._values.get("device") or "")
        found = re.match(r"(\d+)x\s*(.+)", text)
        n, name = (int(found[1]), found[2]) if found else (1, text)
        name = re.sub(r"\s*(@.*|\bCPU\b.*|\d+GB CPU.*)$", "", name).strip()
        if not name:
            raise Unsupported("the device is not given")
        try:
            device = find_device(name)
        except LookupError:
            raise Unsupported(f"device {name[:40]!r} is not in the catalogue") from None
        return max(n, self.whole("gpus", "tp", default=1)), device

    def bandwidth(self) -> float:
        """B/s of all devices together, given or from the catalogue. Raises: Unsupported."""
        if self.has("peak_bw_GBs") or self.has("theoretical_bw_GBs"):
            each = self.number("peak_bw_GBs", "theoretical_bw_GBs") * 1e9
            return each * self.whole("tp", default=1)
        n, device = self.device()
        return n * device.bandwidth_bytes_s

    def weight_format(self) -> str:
        """As `quant`, `precision` or a word after the model's name has it. Raises: Unsupported."""
        for text in (
            self.words("quant"),
            self.words("precision"),
            *reversed(self.words("model").split()),
        ):
            name = _format_of(text)
            if name:
                return name
        raise Unsupported("the precision of the weights is not given")

    def weights(self) -> Bytes:
        """All of them as they are stored. Raises: Unsupported."""
        if self.has("model_GB"):
            return Bytes.of(self.number("model_GB"), "GB")
        if self.has("bits_per_weight"):
            return stored_bytes((self.n_params, self.number("bits_per_weight")))
        name = self.weight_format()
        if self.model is not None and not self.has("params"):
            return weights_bytes(self.model.shape, name)
        reference = _REFERENCE_BITS.get(name)
        if reference is None:
            raise Unsupported(f"bits of {name} depend on a shape that is not given")
        return stored_bytes((self.n_params, reference))

    def read_weights(self) -> Bytes:
        """What a single token reads of them: of a mixture, the experts it meets."""
        whole = self.weights()
        if self.has("active", "total"):
            return whole * (self.number("active") / self.number("total"))
        if self.model is not None:
            found = counts(self.model.shape)
            return whole * (found.active_without_input_embedding / found.total)
        return whole


_FORMATS = {
    "bf16": "bf16",
    "fp16": "fp16",
    "f16": "F16",
    "fp32": "fp32",
    "int8": "int8",
    "int4 g32": "int4-g32",
    "nf4": "nf4",
    "nf4-dq": "nf4-dq",
    "gptq4": "gptq-g128",
    "q4f16": "int4-g32",
}
_REFERENCE_BITS = {"fp32": 32.0, "bf16": 16.0, "fp16": 16.0, "F16": 16.0, "int8": 8.0, "nf4": 4.127}


def _format_of(text: str) -> str:
    """A weight format from a few words; empty where they name none."""
    words = text.strip().lower()
    if not words or words == "none":
        return ""
    if words in _FORMATS:
        return _FORMATS[words]
    named = {name.lower(): name for name in weight_formats()}
    if words in named:
        return named[words]
    first = re.split(r"[ \-]", words)[0]
    first = first.removeprefix("amp_")
    return _FORMATS.get(first, named.get(first, ""))


# -- predicting ---------------------------------------------------------------------------------


def _memory_of_training(case: _Case) -> _Predicted:
    if case.words("strategy") == "zero-3" and case.has("largest_layer"):
        held = states.deepspeed(
            case.n_params,
            estimator="zero3",
            ranks=case.whole("gpus"),
            largest_layer=case.number("largest_layer"),
        )
        return _Predicted(value=held, kind=FULL, says="states as DeepSpeed's estimator has them")
    if case.has("block") or case.has("measure"):
        raise Unsupported("it measures a part of a step that no page predicts by itself")
    method = case.words("method")
    if "lora" in method:
        return _adapters(case)
    recipe, gone = _recipe(case)
    model = case.model
    fields = case.plain()
    seq = fields.get("seq") or (fields.get("max_seq") if fields.get("packed") else None)
    batch = fields.get("batch")
    alone = _ranks(case) == 1
    if model is not None and seq and isinstance(batch, int) and recipe and not gone and alone:
        how = Training(
            recipe=recipe,
            batch_size=batch,
            seq_len=int(seq),
            recompute=fields.get("ckpt") in ("full", True),
        )
        value = Bytes(float(training([model.shape], how).peak[0]))
        savings = [w.replace("_", " ") for w in ("compile", "chunked_ce") if fields.get(w)]
        said = "the whole step at its peak"
        if savings:
            said += f", without what {' and '.join(savings)} saves"
        return _Predicted(value=value, kind=FULL, says=said)
    each = states.RECIPES[recipe] if recipe else None
    per_param = _held_per_param(each, gone) if each else _plain_size(case)
    held = "weights, gradients and moments" if each else "weights"
    without = f", without {' and '.join(gone)}" if gone else ""
    return _Predicted(
        value=Bytes(case.n_params * per_param / _ranks(case)),
        kind=LOWER,
        says=f"{held}{without}, no activations",
    )


def _held_per_param(recipe: states.Recipe, gone: Sequence[str]) -> float:
    """Bytes for each parameter, without what is not kept on the device."""
    left = {"gradients": recipe.gradients, "moments": recipe.moments}
    return recipe.bytes_per_param - sum(left[name] for name in set(gone))


def _ranks(case: _Case) -> int:
    """Devices that a model is split over."""
    if not any(w in case.words("method", "strategy", "technique") for w in ("fsdp", "zero")):
        return 1
    text = case.words("gpu")
    found = re.match(r"(\d+)x", text)
    return max(int(found[1]) if found else 1, case.whole("gpus", default=1))


def _plain_size(case: _Case) -> float:
    """Bytes of a weight where nothing is said of the optimizer."""
    name = case.weight_format()
    if name not in ("fp32", "bf16", "fp16"):
        raise Unsupported(f"weights in {name} are not trained as such")
    return states.size(name)


def _recipe(case: _Case) -> tuple[str, list[str]]:
    """A recipe by precision and optimizer, empty without; what is not kept on the device."""
    optimizer = case.words("optimizer", "method")
    precision = case.words("precision")
    gone = []
    if "paged" in optimizer:
        gone.append("moments")
    if "in-backward" in optimizer or case.plain().get("opt_in_bwd"):
        gone.append("gradients")
    if "adam" not in case.words("optimizer"):
        return "", gone
    if "bit" in case.words("optimizer"):
        gone.append("moments")
    if "pure" in precision:
        return "bf16", gone
    if "fp32" in precision:
        return "fp32", gone
    return "", gone


def _adapters(case: _Case) -> _Predicted:
    """Adapters train, a frozen base is held: its weights are the least."""
    method = case.words("method")
    frozen = case.words("quant")
    if "qlora" in method or frozen.startswith("nf4"):
        name = frozen if frozen.startswith("nf4") else "nf4-dq"
        model = case.model
        if model is not None and not case.has("params"):
            held = weights_bytes(model.shape, name)
        else:
            held = stored_bytes((case.n_params, _REFERENCE_BITS["nf4"]))
        says = f"the frozen base in {name}"
    else:
        size = _plain_size(case) if case.has("precision") else states.size("bf16")
        held, says = Bytes(case.n_params * size), "the frozen base"
    return _Predicted(value=held * (1 / _ranks(case)), kind=LOWER, says=says)


def _memory_of_answers(case: _Case) -> _Predicted:
    if case.has("n_ctx") and (case.has("kv_heads") or case.has("kv_lora_rank")):
        held = cache.cache_bytes(
            cached_shape(case), case.whole("n_ctx"), case.number("kv_bytes", default=2)
        )
        return _Predicted(value=held, kind=FULL, says="keys and values")
    if case.has("bits_per_weight"):
        return _Predicted(value=case.weights(), kind=FULL, says="all tensors of the file")
    return _Predicted(value=case.weights(), kind=LOWER, says="the weights alone")


def _rate(case: _Case) -> _Predicted:
    if any(case.has(w) for w in ("draft", "spec")):
        raise Unsupported("a draft model takes part: one pass gives several tokens")
    if "prompt processing" in case.words("metric"):
        n, device = case.device()
        peak = device.peak_flops["bf16"]
        if peak is None:
            raise Unsupported(f"the peak of {device.name} is not published")
        value = n * peak / decode_flops(counts(case.model.shape).active if case.model else 0)
        return _Predicted(value=value, kind=CEILING, says="peak over 2 N")
    rate = ceiling_tokens_per_s(case.read_weights(), case.bandwidth())
    batch = case.whole("batch", default=1)
    said = "bandwidth over the bytes that a token reads"
    if batch > 1:
        said += f", {batch} sequences sharing them"
    return _Predicted(value=batch * rate, kind=CEILING, says=said)


def _share_of_peak(case: _Case) -> _Predicted:
    _, device = case.device()
    peak = device.peak_flops["bf16"]
    if peak is None:
        raise Unsupported(f"the peak of {device.name} is not published")
    each = utilisation.flops_per_token(
        case.number("params"),
        layers=case.whole("layers"),
        width=case.whole("d"),
        seq_len=case.whole("seq"),
    )
    share = utilisation.mfu(each * case.number("tok_s_per_gpu"), chips=1, peak_flops=peak)
    return _Predicted(value=100 * share, kind=FULL, says="6 N + 12 L h T of the dense peak")


def _time(case: _Case) -> _Predicted:
    if case.plain().get("kv_cache") is False or case.plain().get("cache") is False:
        raise Unsupported("without a cache every token reads all of the text again")
    seconds = case.read_weights().n / case.bandwidth()
    return _Predicted(value=seconds, kind=LOWER, says="reading the weights once")


def _cost(case: _Case) -> _Predicted:
    if case.has("usd_per_node_hour"):
        hours = case.number("steps") * case.number("sec_per_step") / 3600
        value = utilisation.cost_usd(hours, case.number("usd_per_node_hour"))
        return _Predicted(value=value, kind=FULL, says="steps × seconds × price")
    if case.has("tokens"):
        _, device = case.device()
        peak = device.peak_flops["bf16"]
        if peak is None:
            raise Unsupported(f"the peak of {device.name} is not published")
        flops = utilisation.total_flops(case.n_params, case.number("tokens"))
        hours = 24 * utilisation.train_days(flops, chips=1, peak_flops=peak, mfu=1.0)
        return _Predicted(value=hours, kind=LOWER, says="6 N D at the dense peak")
    raise Unsupported("neither steps and their time nor tokens are given")


# -- a row --------------------------------------------------------------------------------------


def validate(row: Mapping[str, str | None]) -> Case:
    """One report beside its prediction; whatever is wrong with it is said, not raised."""
    cells = {name: (row.get(name) or "").strip() for name in COLUMNS}

    def case(
        reported: float | None, kind: str, says: str, value: float | None = None, what: str = ""
    ) -> Case:
        return Case(
            id=cells["id"],
            kind=cells["kind"],
            what=what,
            predicted=value,
            reported=reported,
            unit=cells["unit"],
            kind_of_prediction=kind,
            says=says,
            source=cells["source"],
        )

    try:
        given = json.loads(cells["config_json"])
        if not isinstance(given, dict):
            raise ValueError
    except (ValueError, RecursionError):
        return case(None, NONE, "config_json is no JSON object; give one")
    what = _what(given)
    reported = _reported(cells["reported"])
    if reported is None:
        return case(None, NONE, f"{cells['reported'][:40]!r} is no single number", what=what)
    try:
        found, value = _predicted(cells["kind"], cells["unit"], _Case(given))
    except (Unsupported, ValueError, LookupError, ArithmeticError) as why:
        return case(reported, NONE, str(why)[:200], what=what)
    return case(reported, found.kind, found.says, value, what)


def _predicted(kind: str, unit: str, case: _Case) -> tuple[_Predicted, float]:
    """And its value in the report's unit. Raises: Unsupported."""
    if kind == "train-memory":
        found = _memory_of_training(case)
    elif kind == "infer-memory":
        found = _memory_of_answers(case)
    elif kind == "throughput":
        found = _share_of_peak(case) if "MFU" in unit else _rate(case)
    elif kind == "latency":
        found = _time(case)
    elif kind == "cost":
        found = _cost(case)
    else:
        raise Unsupported(f"a case of kind {kind[:30]!r} is no single figure")
    return found, _in(unit, found.value)


def _in(unit: str, value: Bytes | float) -> float:
    words = unit.split()
    name = words[0] if words else ""
    if isinstance(value, Bytes):
        # Some reports print GB and mean GiB, and say so.
        binary = re.search(r"\(=?\s*(GiB|MiB)", unit)
        name = binary[1] if binary else name
        if name not in ("B", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"):
            raise Unsupported(f"unit {unit[:20]!r} is no unit of bytes")
        return value.in_unit(name)
    if name in ("tok/s", "%", "USD", "GPU-hours", "s", "s/token"):
        return value
    if name in ("ms", "ms/token"):
        return 1000 * value
    raise Unsupported(f"unit {unit[:20]!r} is not known")


def _reported(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _what(given: Mapping[str, Any]) -> str:
    shown = ("model", "method", "quant", "precision", "optimizer", "batch", "seq", "gpu", "device")
    return ", ".join(f"{given[k]}" for k in shown if given.get(k) not in (None, "none", ""))[:120]


def validate_all(rows: Sequence[Mapping[str, str | None]]) -> Iterator[Case]:
    """Every row in order."""
    return map(validate, rows)


def read_cases(path: Path) -> list[dict[str, str | None]]:
    """Raises: ValueError with one sentence for a file that cannot be used."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as why:
        raise ValueError(f"{path} cannot be read: {why.strerror or why}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; save it as CSV in UTF-8") from None
    reader = csv.DictReader(text.splitlines(keepends=True))
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise ValueError(f"{path} lacks the columns {', '.join(missing)}; it needs them all")
    return [dict(row) for row in reader]


def summary(cases: Sequence[Case]) -> str:
    """How many of each class, and how many bounds are none."""
    kinds = {
        kind: sum(c.kind_of_prediction == kind for c in cases)
        for kind in (FULL, LOWER, CEILING, NONE)
    }
    broken = sum(c.holds is False for c in cases)
    said = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    return f"{len(cases)} cases: {said}; {broken} bounds broken"


def main(argv: Sequence[str]) -> int:
    """A line for each case, tab-separated. Returns 0, 1 if a bound is broken, 2 for no file."""
    if len(argv) != 1 or argv[0] in ("-h", "--help"):
        print(
            "usage: python -m core validate FILE.csv\n"
            f"columns: {', '.join(COLUMNS)}; config_json an object",
            file=sys.stderr if len(argv) != 1 else sys.stdout,
        )
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    try:
        rows = read_cases(Path(argv[0]))
    except ValueError as why:
        print(why, file=sys.stderr)
        return 2
    cases = list(validate_all(rows))
    print("id", "predicted", "reported", "unit", "ratio", "class", "what", sep="\t")
    for c in cases:
        numbers = ["" if v is None else f"{v:.4g}" for v in (c.predicted, c.reported)]
        ratio = "" if c.ratio is None else f"{c.ratio:.3f}"
        kind = c.kind_of_prediction + (" BROKEN" if c.holds is False else "")
        print(c.id, *numbers, c.unit, ratio, kind, c.says, sep="\t")
    print(summary(cases))
    return int(any(c.holds is False for c in cases))
