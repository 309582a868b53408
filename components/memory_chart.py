"""Bytes against parameters: two lines, every model of the catalogue, what was measured here."""

from collections.abc import Sequence

from components.sizing import CONTROLS, Sized, everything
from components.theme import bytes_text, error_text, times_text
from components.widgets.logchart import (
    Axis,
    Layer,
    Line,
    LogChart,
    Measure,
    Point,
    Points,
    Reference,
    Stack,
)
from core.catalog import Device, devices
from core.footprints import SERVING, TRAINING, Footprints, serving, training
from core.specs import LADDER_FORMATS
from core.states import RECIPES
from core.sweeps import Row

VIEWS = CONTROLS["view"].options
CATEGORIES = {  # colour and second cue of each category, as in every stack of the product
    "weights": ("weights", ""),
    "gradients": ("gradients", "hatched"),
    "optimizer": ("optimizer", "dotted"),
    "activations": ("activations", ""),
    "logits": ("loss", "hatched"),
    "cache": ("cache", ""),
    "temporaries": ("temporaries", "thin"),
}
NAMES = {"cache": "KV cache", "optimizer": "optimizer state"}
WELL_KNOWN = (
    "gpt-2-xl-1.5b",
    "smollm2-135m",
    "llama-3.1-8b",
    "llama-3.1-70b",
    "llama-3.1-405b",
    "deepseek-v3-r1",
    "qwen3-0.6b",
)
CAPACITIES = (
    "raspberry-pi-5-8gb",
    "rtx-4090-24gb",
    "h100-sxm-80gb",
    "b300-sxm-288gb",
    "apple-m3-ultra",
)
LEAST_BAND = 0.01  # what a prediction of a peak may be off by, where nothing was measured


def figure(sized: Sized, view: str, measured: Sequence[Row]) -> LogChart:
    """The chart for the settings of the page."""
    all_models = everything()
    steps, answers = (
        training(all_models.shapes, sized.training),
        serving(all_models.shapes, sized.serving),
    )
    series: list[Line | Points | Stack] = []
    if view == VIEWS[0]:
        named = {
            slug for slug in WELL_KNOWN if slug != sized.chosen.slug
        }  # whose name stands at the measure
        peaks = [r for r in measured if r.quantity.endswith("peak_bytes")]
        in_bf16 = RECIPES[sized.training.recipe].computes != "fp32" or (
            RECIPES[sized.training.recipe].autocast
        )
        weights = sized.serving.weight_format
        for name, colour, symbol, found, work, kind in (
            ("a training step", "backward", "circle", steps, "train", "bf16" * in_bf16 or "fp32"),
            (
                "answering",
                "forward",
                "square",
                answers,
                "prefill",
                weights if weights in LADDER_FORMATS else "bf16",
            ),
        ):
            own = [r for r in peaks if r.work == work and r.format == kind]
            series += _totals(name, colour, symbol, found, own, named)
    else:
        trains = view == VIEWS[1]
        series += _stacked(steps if trains else answers, TRAINING if trains else SERVING)
    step, answer = (
        training([sized.chosen.shape], sized.training),
        serving([sized.chosen.shape], sized.serving),
    )
    high, low = float(step.peak[0]), float(answer.peak[0])
    return LogChart(
        x=Axis(title="parameters", unit="params", low=6e4, high=1.6e12),
        y=Axis(title="bytes on one device", unit="B"),
        series=series,
        lines=_capacities(sized.device),
        measure=Measure(
            x=max(sized.chosen.n_params, 6e4),
            low=low,
            high=high,
            text=times_text(high / low) if high >= low else times_text(low / high) + " less",
            label=sized.chosen.name,
        ),
        height=470,
        summary=f"Bytes against parameters on logarithmic axes. {sized.chosen.name}: "
        f"{bytes_text(high)} for a training step, {bytes_text(low)} for answering.",
        beyond="larger than anything measured here: predicted, with the error seen so far"
        if measured
        else "nothing was measured here yet: predicted, with room for 1 %",
    )


def _totals(
    name: str,
    colour: str,
    symbol: str,
    found: Footprints,
    measured: Sequence[Row],
    named: set[str],
) -> list[Line | Points | Stack]:
    all_models = everything()
    line, points = all_models.split([float(v) for v in found.peak])
    ladder = all_models.ladder
    errors = [abs(r.error) for r in measured if r.error is not None]
    off = max([LEAST_BAND, *errors])
    largest = max([r.n_params for r in measured], default=0)
    series: list[Line | Points | Stack] = [
        Line(
            name=f"{name}, predicted",
            colour=colour,
            points=list(zip(ladder, line, strict=True)),
            band=[
                (x, y / (1 + off), y * (1 + off))
                for x, y in zip(ladder, line, strict=True)
                if x >= largest
            ],
        ),
        Points(
            name=f"{name}, published models",
            colour=colour,
            symbol=symbol,
            items=[
                Point(
                    x=n,
                    y=y,
                    label=model.name,
                    id=model.slug,
                    rows=(("peak in", found.phase[len(ladder) + i]),),
                    named=model.slug in named and colour == "backward",
                )
                for i, (model, n, y) in enumerate(
                    zip(all_models.catalogue, all_models.n_params, points, strict=True)
                )
            ],
        ),
    ]
    if measured:
        one = measured[0]
        series.append(
            Line(
                name=f"{name} of {one.batch_size} × {one.seq_len} tokens in {one.format}",
                colour=colour,
                points=[(r.n_params, r.predicted) for r in measured if r.predicted],
            )
        )
        series.append(
            Points(
                name=f"{name}, measured here",
                colour=colour,
                symbol=symbol,
                filled=True,
                items=[_measured(row) for row in measured if row.measured],
            )
        )
    return series


def _measured(row: Row) -> Point:
    said = (
        ("predicted", bytes_text(row.predicted) if row.predicted else "–"),
        ("error", error_text(row.error)),
        ("settings", f"{row.work}, {row.format}, {row.batch_size} × {row.seq_len} tokens"),
    )
    return Point(x=row.n_params, y=float(row.measured or 0), label="measured here", rows=said)


def _stacked(found: Footprints, categories: Sequence[str]) -> list[Stack]:
    all_models = everything()
    layers = []
    for name in categories:
        values, _ = all_models.split([float(v) for v in found.parts[name]])
        colour, pattern = CATEGORIES[name]
        layers.append(
            Layer(name=NAMES.get(name, name), colour=colour, pattern=pattern, values=values)
        )
    return [Stack(name="at the peak", xs=list(all_models.ladder), layers=layers)]


def _capacities(chosen: Device | None) -> list[Reference]:
    shown = [devices()[slug] for slug in CAPACITIES]
    if chosen is not None:
        shown = [chosen, *(d for d in shown if d != chosen)]
    return [Reference(at=float(d.usable.n), label=d.name, strong=d is chosen) for d in shown]
