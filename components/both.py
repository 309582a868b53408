"""The home page's two runs, a training step and an answer of one model: which are looked at, what
its buttons do, and the six numbers that compare them.
"""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import streamlit as st

from components import claims, runs, settings
from components.claims import Unpredicted
from components.runs import View
from components.settings import Control
from components.theme import (
    bytes_text,
    count,
    error_text,
    measured_step_text,
    sentence,
    small_text,
    value_text,
)
from core import answer_account, answer_limits, latency, limits, pretrained, step_latency
from core.answer_account import Told
from core.compare import Comparison
from core.events import Sample, Scalar, Token
from core.memory import Prediction
from core.recordings import shipped
from core.specimens import predictions, runs_folder, torch_step
from core.specs import AdditionSpec, CalibrationSpec, FinetuneSpec, GenerateSpec, Spec

STEP, ANSWER = "step", "answer"  # URL keys of the attempts, and the names of the lanes
_NEXT = "both-next"  # session state: the pair whose step follows its answer
_STARTED = "both-started"  # session state: attempts by pair and lane
UNCALIBRATED = "not calibrated yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One model, trained for a step and asked for an answer."""

    key: str
    title: str
    step: Spec
    answer: GenerateSpec
    about: str


PAIRS = {
    pair.key: pair
    for pair in (
        Pair(
            key="SmolLM2-135M",
            title="SmolLM2-135M",
            step=FinetuneSpec(),
            answer=GenerateSpec(),
            about="A published language model of 30 layers. The step trains all of its weights on "
            "32 tokens of a short text; the answer goes on from the text's first words.",
        ),
        Pair(
            key="sums",
            title="sums",
            step=AdditionSpec(),
            answer=GenerateSpec(model="addition", prompt="12+34=", max_new_tokens=3, context=8),
            about="A transformer of two layers that was trained here on two-digit sums. The step "
            "is one of its training run, or the first of a new one; the answer adds two numbers.",
        ),
    )
}
CONTROLS = {
    "pair": Control(
        key="pair",
        label="Model",
        help="What is trained for one step, and asked once.",
        default=next(iter(PAIRS)),
        widget="choice",
        options=tuple(PAIRS),
    ),
    "t": Control(
        key="t",
        label="Moment",
        help="",
        default="",
        widget="free",
        pattern=r"\d{1,4}(\.\d{1,9})?",
        rule="must be seconds since both began, as in 0.25",
    ),
    **{
        key: Control(
            key=key,
            label=f"Run of the {key}",
            help="",
            default="",
            widget="free",
            pattern=runs.ATTEMPT.pattern,
            rule="must be the name of a run",
        )
        for key in (STEP, ANSWER)
    },
}


# -- which runs ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """The runs that are looked at; None where there is none yet."""

    pair: Pair
    step: View[Spec] | None
    answer: View[GenerateSpec] | None
    follows: bool = False  # the step has still to be started, once the answer is complete
    calibrating: bool = False  # this machine, between the two

    @property
    def open(self) -> bool:
        return self.follows or any(view and view.open for view in (self.step, self.answer))

    @property
    def here(self) -> bool:
        """Whether one of them was run on this machine."""
        return any(view and view.attempt for view in (self.step, self.answer))

    @property
    def origin(self) -> str:
        """Where and when both were measured, once where it is the same."""
        views = (("step", self.step), ("answer", self.answer))
        said = {name: view.origin for name, view in views if view}
        if len(set(said.values())) < 2:
            return next(iter(said.values()), "nothing is recorded yet")
        return "; ".join(f"{name} {origin}" for name, origin in said.items())


def look(pair: Pair) -> Both:
    follows = st.session_state.get(_NEXT) == pair.key
    return Both(
        pair=pair,
        step=None if follows else cast("View[Spec] | None", _look(pair, STEP)),
        answer=cast("View[GenerateSpec] | None", _look(pair, ANSWER)),
        follows=follows,
    )


def _look(pair: Pair, key: str) -> View | None:
    """The run that was started here or that the URL names, else the shipped one, else the latest
    that is whole.
    """
    spec = pair.step if key == STEP else pair.answer
    attempt = _started(pair).get(key) or st.query_params.get(key)
    if attempt is not None:
        folder = runs.host().folder(spec, attempt)
        if folder is not None:
            st.query_params[key] = attempt
            return runs.view_of(spec, attempt, folder)
        runs.explain_missing(attempt, "Run both here")
        st.query_params.pop(key, None)
    return runs.unnamed(spec)


def _started(pair: Pair) -> dict[str, str]:
    """Attempts that this visit has started, by lane. The URL holds them too, but a rerun that the
    browser asks for meanwhile comes with the URL of before.
    """
    return st.session_state.setdefault(_STARTED, {}).setdefault(pair.key, {})


# -- what the buttons do ------------------------------------------------------------------------


def run_here(pair: Pair) -> None:
    """Both runs anew on this machine, one after the other so that neither disturbs the other's
    clock: the answer, which is quick, first.
    """
    st.session_state[_NEXT] = pair.key
    _started(pair).clear()
    st.query_params.pop(STEP, None)
    _start(pair, ANSWER)


def _start(pair: Pair, key: str) -> None:
    trains = key == STEP and isinstance(pair.step, AdditionSpec)  # waits once a step is recorded
    spec = pair.step if key == STEP else pair.answer
    st.query_params[key] = _started(pair)[key] = runs.submit(spec, paused=trains)


def go_on(both: Both) -> Both:
    """Once the answer is complete, see what this machine does in a second, where that is not known
    yet, then start the step; end a training run whose first step is recorded. The runs as they are
    then.
    """
    pair, answer, step = both.pair, both.answer, both.step
    if both.follows and (answer is None or not answer.open):
        finished = answer is not None and answer.state == "finished"
        if finished and _calibrating(pair.answer):
            return replace(both, calibrating=True)
        if finished and STEP not in _started(pair):
            _start(pair, STEP)
        st.session_state.pop(_NEXT, None)
        return look(pair)
    if step and step.attempt and step.state == "paused" and step.trace.recorded_steps:
        runs.host().command(step.spec, step.attempt, "stop")
    return both


def _calibrating(spec: GenerateSpec) -> bool:
    """Whether this machine is being calibrated for an answer, which begins unless it was."""
    if latency.stored(runs_folder(), spec.weight_format, spec.threads) is not None:
        return False
    wanted = CalibrationSpec(weight_formats=(spec.weight_format,), threads=spec.threads)
    view = runs.latest(wanted)
    if view is None:
        runs.submit(wanted)
        return True
    return view.open


def stop(both: Both) -> None:
    st.session_state.pop(_NEXT, None)
    for view in (both.step, both.answer):
        if view and view.attempt and view.open:
            runs.host().command(view.spec, view.attempt, "stop")


def show_recordings(pair: Pair) -> None:
    _started(pair).clear()
    for key in (STEP, ANSWER):
        st.query_params.pop(key, None)


def use(pair: Pair) -> None:
    """Choose another model, and run it at once."""
    st.session_state["pair"] = pair.key
    run_here(pair)


def step_link(pair: Pair) -> dict[str, str]:
    """Where the Training page shows the step of a pair."""
    own = pair.step.specimen
    return {"specimen": own} if own in settings.CONTROLS["specimen"].options else {}


def answer_link(both: Both) -> dict[str, str]:
    """Where the Inference page shows the answer: its settings, and the run if it was made here."""
    spec = both.pair.answer
    link = {"model": spec.model, "prompt": spec.prompt} if spec != GenerateSpec() else {}
    if both.answer and both.answer.attempt:
        link[runs.RUN] = both.answer.attempt
    return link


def outcome(both: Both) -> None:
    """Why a run broke off, or ended early."""
    for name, view in (("step", both.step), ("answer", both.answer)):
        ended = view.trace.ended if view else None
        if view and view.state in ("failed", "died"):
            message = ended.message if ended else "its process ended without a word"
            st.error(f"The {name} broke off: {sentence(message)} What was recorded is kept.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a pair cannot be run on this machine, and the largest that can."""

    why: str
    fitting: Pair | None


def obstacle(pair: Pair) -> Obstacle | None:
    """None if both may run here."""
    why = _refused(pair)
    if why is None:
        return None
    others = (other for other in PAIRS.values() if other is not pair and _refused(other) is None)
    return Obstacle(why=why, fitting=next(others, None))


def _refused(pair: Pair) -> str | None:
    try:
        shape = pretrained.shape_of(pair.answer.model)
        step = limits.refusal(pair.step)
        answer = answer_limits.refusal(pair.answer, shape, n_prompt=1)
    except pretrained.Unavailable as why:
        return f"It cannot be run here: {why}."
    if step is None and answer is None:
        return None
    what, need = ("step", step.need) if step else ("answer", cast(Any, answer).need)
    return (
        f"The {what} would hold {bytes_text(need.peak_bytes)} at its peak, predicted. "
        f"A run may hold {bytes_text(limits.max_run_bytes())} here, so what you see was recorded "
        "elsewhere."
    )


# -- the six numbers ----------------------------------------------------------------------------

Number = Comparison | Unpredicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One of the numbers under a lane, and what it is made of."""

    number: Number
    value: str
    label: str
    note: str

    @property
    def id(self) -> str:
        return self.number.quantity.id


def step_figures(view: View[Spec] | None, pair: Pair) -> list[Fact]:
    """Peak, throughput, and how far the weights moved."""
    spec = pair.step
    measured = view.last_recorded_scalars if view else {}
    first = not measured or (view is not None and view.at_first_step)
    found = _predicted(lambda: predictions(spec, _examples(measured, spec), first=first))
    peak = _number(found.get("peak_bytes"), "peak_bytes", measured.get("peak_bytes"))
    rate = None
    if "recorded_step_s" in measured:
        rate = _tokens(measured, spec) / measured["recorded_step_s"]
    return [
        _figure(peak, "peak memory"),
        _figure(_rate(view, pair, _examples(measured, spec), rate), "throughput"),
        _moved_figure(measured, _first_change(spec) if first else None, _hashes(view)),
    ]


def _rate(view: View[Spec] | None, pair: Pair, examples: int, measured: float | None) -> Number:
    """Tokens a second. Predicted from what the same machine does in a second."""
    answer = pair.answer
    calibration = latency.stored(
        runs_folder(), answer.weight_format, answer.threads, _machine(view)
    )
    if calibration is not None:
        with contextlib.suppress(pretrained.Unavailable):
            step = torch_step(pair.step, examples)
            prediction = step_latency.predicted_rate(step, calibration)
            return Comparison(prediction=prediction, measured=measured)
    return Unpredicted(id="step_tokens_per_s", measured=measured, why=UNCALIBRATED)


def _machine(view: View | None) -> Mapping[str, Any] | None:
    """Where times were measured; None: here."""
    return answer_account.machine_of(view.trace) if view else None


def answer_figures(view: View[GenerateSpec] | None, pair: Pair) -> list[Fact]:
    """Peak, time per token, and that the weights stayed."""
    told = Told.by(view.trace) if view else None
    scalars = told.scalars if told else {}
    n_prompt = (told.n_prompt if told else 0) or _recorded_prompt(pair.answer)
    found = _predicted(lambda: _answer_bytes(pair.answer, n_prompt) if n_prompt else {})
    peak = _number(found.get("answer_peak_bytes"), "answer_peak_bytes", scalars.get("peak_bytes"))
    each = _time(view, pair.answer, n_prompt, scalars.get("tpot_s"))
    hashes = _hashes(view)
    still = Prediction(
        quantity="answer_change",
        value=0.0,
        inputs=(("g, gradients that are computed", "0"), ("η·u, an update", "none is made")),
        arithmetic="0",
    )
    same = None if None in hashes else 0.0 if hashes[0] == hashes[1] else math.inf
    return [
        _figure(peak, "peak memory"),
        _figure(each, "per token"),
        _frozen_figure(_number(still, "answer_change", same), hashes),
    ]


def _time(
    view: View[GenerateSpec] | None, spec: GenerateSpec, n_prompt: int, measured: float | None
) -> Number:
    """Of a further token. Predicted from what the same machine does in a second."""
    found = _predicted(
        lambda: (
            answer_account.predicted_times(
                spec, pretrained.shape_of(spec.model), n_prompt, runs_folder(), _machine(view)
            )
            if n_prompt
            else {}
        )
    )
    if "tpot_s" not in found:
        return Unpredicted(id="tpot_s", measured=measured, why=UNCALIBRATED)
    return Comparison(prediction=found["tpot_s"], measured=measured)


def _recorded_prompt(spec: GenerateSpec) -> int:
    """Tokens of the prompt, as the shipped run counted them; 0 if there is none."""
    recording = shipped(spec)
    return Told.by(runs.read(recording)).n_prompt if recording else 0


def _answer_bytes(spec: GenerateSpec, n_prompt: int) -> dict[str, Prediction]:
    shape = pretrained.shape_of(spec.model)
    return answer_account.predicted_bytes(spec, shape, n_prompt)


def _predicted(make: Any) -> dict[str, Prediction]:
    """Nothing where the model's file is not on this machine: its shape stands in it."""
    try:
        return make()
    except pretrained.Unavailable:
        return {}


def _number(prediction: Prediction | None, id: str, measured: float | None) -> Number:
    if prediction is None:
        return Unpredicted(id=id, measured=measured, why="not predicted here")
    return Comparison(prediction=prediction, measured=measured)


def _figure(number: Number, label: str) -> Fact:
    measured, unit = number.measured, number.quantity.unit
    return Fact(
        number=number,
        value="…" if measured is None else value_text(measured, unit),
        label=label,
        note=_note(number),
    )


def _note(number: Number) -> str:
    if isinstance(number, Unpredicted):
        return number.why
    predicted = value_text(number.prediction.value, number.quantity.unit)
    return f"predicted {predicted} · {error_text(number.error)}"


def _moved_figure(
    measured: dict[str, float], first: Prediction | None, hashes: tuple[str | None, str | None]
) -> Fact:
    """The hash before and after an update, and how far it moved a weight, or all of them."""
    largest = measured.get("largest_change")
    if first is not None and (largest is not None or not measured):
        number: Number = Comparison(prediction=first, measured=largest)
    else:
        why = "predicted for first steps only" if first is None else "no single weight recorded"
        number = Unpredicted(id="largest_change", measured=largest, why=why)
    squares = [v * v for name, v in measured.items() if name.startswith("norm.update_")]
    change = "" if largest is None else f"|Δ| {small_text(largest)}"
    if largest is None and squares:
        norm = math.sqrt(sum(squares))
        change = f"‖Δ‖ {norm:.2g}" if norm >= 0.01 else f"‖Δ‖ {small_text(norm)}"
    said = " · ".join(part for part in (_sha(hashes), change) if part)
    return Fact(number=number, value="weights moved", label=said or "…", note=_note(number))


def _frozen_figure(number: Number, hashes: tuple[str | None, str | None]) -> Fact:
    """The hash before and after an answer: one bit decides."""
    changed = number.measured not in (None, 0.0)
    said = [_sha(hashes), "|Δ| 0" if number.measured == 0 else ""]
    return Fact(
        number=number,
        value="weights changed" if changed else "weights frozen",
        label=" · ".join(part for part in said if part) or "…",
        note=_note(number),
    )


def _sha(hashes: tuple[str | None, str | None]) -> str:
    before, after = hashes
    return f"sha {before[:4]} → {after[:4] if after else '…'}" if before else ""


def _examples(measured: dict[str, float], spec: Spec) -> int:
    return int(measured.get("batch_examples", spec.batch_size))


def _tokens(measured: dict[str, float], spec: Spec) -> float:
    """Tokens that the recorded step read."""
    seq_len = getattr(spec, "seq_len", 1)
    return measured.get("batch_tokens", _examples(measured, spec) * seq_len)


def _first_change(spec: Spec) -> Prediction | None:
    """AdamW's first update: both averages hold one gradient, so their ratio is its sign."""
    if spec.optimizer != "adamw":
        return None
    rate = spec.learning_rate
    return Prediction(
        quantity="largest_change",
        value=rate,
        inputs=(("η, learning rate", f"{rate:g}"), ("m̂ / √v̂ at the first update", "± 1")),
        arithmetic=f"{rate:g} × 1 = {rate:g}",
    )


def _hashes(view: View | None) -> tuple[str | None, str | None]:
    """Of all weights, before and after what is shown of a run."""
    found: dict[str, str] = {}
    for event in view.trace.events if view else ():
        if isinstance(event, Sample) and event.name.startswith("weights_sha256_"):
            found[event.name] = event.text
    return found.get("weights_sha256_before"), found.get("weights_sha256_after")


# -- what to see --------------------------------------------------------------------------------


def takeaway(both: Both) -> str:
    """One sentence from the data; what is missing where there are not two peaks yet."""
    step, answer = both.step, both.answer
    held = step.last_recorded_scalars.get("peak_bytes") if step else None
    answered = Told.by(answer.trace).scalars.get("peak_bytes") if answer else None
    if not held or not answered or step is None or answer is None:
        return "The comparison stands here once both have been recorded."
    ratio = held / answered
    said = (
        f"The step holds {bytes_text(held)}, the answer {bytes_text(answered)}: "
        f"{ratio:.3g} times as much."
    )
    tokens = [e for e in answer.trace.events if isinstance(e, Token) and e.row == 0 and e.end_s]
    length = step.last_recorded_scalars["recorded_step_s"]
    in_time = sum(1 for e in tokens if e.end_s is not None and e.end_s <= length)
    meanwhile = f"all {count(len(tokens))}" if in_time == len(tokens) else count(in_time)
    said += f" While it ran once, forward, backward and update, the answer gave {meanwhile} tokens."
    if any(_busy(view) for view in (step, answer)):
        said += " The machine was busy meanwhile: times are too long."
    return said


def _busy(view: View) -> bool:
    events = (e for e in view.trace.events if isinstance(e, Scalar) and e.name == "contended")
    return any(e.value for e in events)


# -- how a number is made -----------------------------------------------------------------------


@st.dialog(claims.MADE)
def explain(figure: Fact, view: View | None) -> None:
    claims.working(figure.number, view.origin if view else "not measured yet", _repeats(view))
    if figure.number.quantity.id in ("largest_change", "answer_change"):
        before, after = _hashes(view)
        st.markdown(
            f"SHA-256 of all weights  \nbefore: `{before or 'not hashed'}`  \n"
            f"after: `{after or 'not hashed'}`"
        )


def _repeats(view: View | None) -> str:
    if view is None:
        return ""
    if view.spec.purpose == "train":
        return measured_step_text(view.last_recorded_scalars)
    return "One answer, timed trip by trip."
