"""What the Memory page says beneath its chart: the peak, the fit, the conventions, the model."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from components import claims, folded, sizing
from components.memory_chart import CATEGORIES, NAMES
from components.sizing import Sized
from components.theme import both_units, bytes_text, count, plain, times_text
from components.widgets.logchart import Segment, StackRow, stacks
from core.cache import FORMATS as CACHE_FORMATS
from core.cache import bytes_per_token, kept_by_kind
from core.catalog import Device
from core.fits import (
    HEADROOM,
    Change,
    Verdict,
    context_that_fits,
    needed_devices,
    serving_changes,
    serving_verdict,
    training_changes,
    training_verdict,
)
from core.footprints import SERVING, TRAINING, Footprints, serving, train_step, training
from core.machines import host
from core.memory import Prediction
from core.quantised import CUSTOMS, stays, weight_formats, weights_bytes
from core.sizes import Bytes
from core.states import CONVENTIONS, RECIPES, with_optimizer
from core.transformer import model_ops

PHASES = {
    "forward": "forward",
    "loss": "the loss",
    "backward": "backward",
    "update": "the update",
    "prefill": "reading a prompt",
}


def headline(sized: Sized) -> None:
    """One sentence with the chosen model's numbers."""
    step, answer = _both(sized)
    need, gives = float(step.peak[0]), float(answer.peak[0])
    name = plain(sized.chosen.name)
    times = times_text(need / gives)
    largest = max(TRAINING, key=lambda c: float(step.parts[c][0]))
    st.markdown(
        f"**{name}** needs **{bytes_text(need)}** to take one training step and "
        f"**{bytes_text(gives)}** to answer: {times} as much. The largest part is "
        f"{_long(largest)}, {bytes_text(float(step.parts[largest][0]))}."
    )


def _both(sized: Sized) -> tuple[Footprints, Footprints]:
    shape = [sized.chosen.shape]
    return training(shape, sized.training), serving(shape, sized.serving)


def _long(category: str) -> str:
    return {
        "weights": "the weights",
        "gradients": "the gradients",
        "optimizer": "what the optimizer keeps",
        "activations": "the activations kept for backward",
        "logits": "the logits and what the loss makes of them",
        "temporaries": "what ops hold for a moment",
    }[category]


# -- the peak -------------------------------------------------------------------------------------


def peak(sized: Sized) -> None:
    """Both peaks to scale, and where they fall."""
    step, answer = _both(sized)
    where = _where(step)
    st.header("Where the peak falls")
    stacks(
        [
            StackRow(name="a training step", segments=_segments(step, TRAINING), note=where),
            StackRow(
                name="answering",
                segments=_segments(answer, SERVING),
                note="while a prompt is read",
            ),
        ],
        key="peak-stacks",
        summary=f"Training: {bytes_text(float(step.peak[0]))}, {where}. "
        f"Answering: {bytes_text(float(answer.peak[0]))}.",
        capacity=_capacity(sized.device),
    )
    phases = {PHASES[k]: bytes_text(float(v[0])) for k, v in step.phase_peaks.items()}
    most = max(step.phase_peaks, key=lambda k: float(step.phase_peaks[k][0]))
    st.caption(
        "Highest in each phase of the step: "
        + ", ".join(f"{name} {value}" for name, value in phases.items())
        + f". The peak is the greatest of them, in {PHASES[most]}, and no sum of largest parts: "
        "activations have gone when the last gradients are there."
    )


def _where(step: Footprints) -> str:
    phase, op = step.phase[0], step.op[0]
    if phase == "backward" and op.startswith("embed"):
        return "at the end of backward"
    if op.startswith(("loss", "head")):
        return f"where the loss is worked out ({op}, {PHASES[phase]})"
    return f"in {PHASES[phase]} ({op})"


def _segments(found: Footprints, categories: Sequence[str]) -> list[Segment]:
    return [
        Segment(
            name=NAMES.get(name, name),
            value=float(found.parts[name][0]),
            colour=CATEGORIES[name][0],
            pattern=CATEGORIES[name][1],
        )
        for name in categories
    ]


def usable(device: Device | None) -> tuple[Bytes, str, str]:
    """Bytes, the device's name, and where the figure is from."""
    if device is None:
        return Bytes(int(host()["memory_bytes"])), "this machine", "all of its memory"
    return device.usable, device.name, device.usable_source


def _capacity(device: Device | None) -> tuple[float, str]:
    room, name, _ = usable(device)
    return float(room.n), name


# -- the fit --------------------------------------------------------------------------------------


def fit(sized: Sized) -> None:
    """Verdicts, and the least that would have to change."""
    room, name, source = usable(sized.device)
    shape = sized.chosen.shape
    train = training_verdict(shape, sized.training, room)
    answer = serving_verdict(shape, sized.serving, room)
    st.header("Does it fit?")
    st.caption(f"{plain(name)}: {both_units(float(room.n))} usable, from {plain(source)}.")
    left, right = st.columns(2)
    with left:
        _verdict("One training step", train)
        if not train.fits:
            _changes(training_changes(shape, sized.training, room), "train")
    with right:
        _verdict("Answering", answer)
        if answer.fits:
            _context(sized, room)
        else:
            _changes(serving_changes(shape, sized.serving, room), "answer")
    st.caption(
        f"Not in these figures: the program's own context and what an allocator cannot use, about "
        f"0.5 to {bytes_text(float(HEADROOM.n))} on a GPU; with ZeRO-3, the weights of a layer "
        "while they are gathered."
    )


def _verdict(what: str, verdict: Verdict) -> None:
    with st.container(border=True, key=f"claim-fit-{what.split()[0].lower()}"):
        left = bytes_text(abs(float(verdict.left.n)))
        if verdict.fits:
            said, more = "fits", f"{left} to spare"
            if verdict.tight:
                more += ": tight, a program needs about as much for itself"
        else:
            said = "does not fit"
            n = needed_devices(verdict.needed, verdict.usable)
            more = f"{left} too much: {count(n)} devices, could it be split evenly"
        st.markdown(f"{what}  \n**{said}**")
        st.caption(f"{bytes_text(float(verdict.needed.n))} needed, {more}.")


def _context(sized: Sized, room: Bytes) -> None:
    most = context_that_fits(sized.chosen.shape, sized.serving, room)
    n = sized.serving.batch_size
    who = "each of them" if n > 1 else "it"
    if most is None:
        st.markdown("A longer text costs no more memory: this fits at any length.")
        return
    limit = sized.chosen.shape.max_seq_len
    more = f" The model was made for {count(limit)}." if most > limit else ""
    st.markdown(
        f"Beside the weights there is room for **{count(most)} tokens** of keys and values for "
        f"{who}.{more}"
    )


def _changes(changes: Sequence[Change], key: str) -> None:
    st.markdown("**What to change**, the least first:")
    with st.container(gap="xxsmall"):
        for i, change in enumerate(changes):
            mark = "**fits**" if change.fits else "not enough"
            needs = f"{change.says}: {bytes_text(float(change.needed.n))}, {mark}"
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.markdown(needs)
                if change.settings:
                    st.button(
                        "Try it",
                        key=f"try-{key}-{i}",
                        on_click=_try,
                        args=(change,),
                        type="tertiary",
                    )


def _try(change: Change) -> None:
    for name, value in change.settings:
        sizing.use(name, value)


# -- numbers with their working -------------------------------------------------------------------


def numbers(sized: Sized) -> None:
    """The headline figures, each with formula, inputs, arithmetic and source."""
    step, answer = _both(sized)
    recipe = with_optimizer(RECIPES[sized.training.recipe], sized.training.optimizer)
    n = sized.chosen.n_params
    claims.forecasts(
        [
            _params(sized),
            Prediction(
                quantity="model_step_peak_bytes",
                value=float(step.peak[0]),
                inputs=(
                    ("P, parameters", count(n)),
                    ("w, bytes of a weight", f"{recipe.weights:g} ({recipe.label})"),
                    ("s, bytes of optimizer state for each", f"{recipe.states:g}"),
                    ("B × T", f"{sized.training.batch_size} × {sized.training.seq_len}"),
                    ("highest", _where(step)),
                ),
                arithmetic=_sum(step, TRAINING),
            ),
            Prediction(
                quantity="model_answer_peak_bytes",
                value=float(answer.peak[0]),
                inputs=(
                    ("W, weights", sized.serving.weight_format),
                    ("C, keys and values", sized.serving.cache_format),
                    ("B × S", f"{sized.serving.batch_size} × {sized.serving.context}"),
                ),
                arithmetic=_sum(answer, SERVING),
            ),
            _cache(sized),
        ],
        why="too large to measure here" if n > 400_000_000 else "measure it below",
    )


def _sum(found: Footprints, categories: Sequence[str]) -> str:
    parts = " + ".join(f"{float(found.parts[c][0]):,.0f}" for c in categories)
    return f"{parts} = {float(found.peak[0]):,.0f}"


def _params(sized: Sized) -> Prediction:
    chosen = sized.chosen
    inputs = [("layers", f"{chosen.shape.n_layer}: {_kinds(chosen)}")]
    if chosen.model is not None:
        inputs.append(("published total counts", chosen.model.count_convention))
    if chosen.n_active != chosen.n_params:
        inputs.append(("met by one token", count(chosen.n_active)))
    return Prediction(
        quantity="params",
        value=chosen.n_params,
        inputs=tuple(inputs),
        arithmetic=f"the table's rows together = {count(chosen.n_params)}",
    )


def _cache(sized: Sized) -> Prediction:
    how, shape = sized.serving, sized.chosen.shape
    each = CACHE_FORMATS[how.cache_format]
    terms = []
    for kept in kept_by_kind(shape):
        seen = min(how.context, kept.window) if kept.window else how.context
        if kept.per_token:
            terms.append(f"{kept.n_layers} × {seen:,.0f} × {kept.per_token:g}")
        if kept.state:
            terms.append(f"{kept.n_layers} × {kept.state:,}")
    value = float(serving([shape], how).parts["cache"][0])
    return Prediction(
        quantity="model_cache_bytes",
        value=value,
        inputs=(
            ("B, sequences", count(how.batch_size)),
            ("S, tokens of each", count(how.context)),
            ("e, bytes of a number", f"{each.bytes_per_number:g} ({each.source})"),
            ("n, numbers of a token in a layer", _per_layer(sized)),
        ),
        arithmetic=f"{how.batch_size} × ({' + '.join(terms)}) × {each.bytes_per_number:g} = "
        f"{value:,.0f}",
    )


def _per_layer(sized: Sized) -> str:
    return "; ".join(
        f"{k.kind} {k.per_token:g}" for k in kept_by_kind(sized.chosen.shape) if k.per_token
    )


# -- conventions ----------------------------------------------------------------------------------


def conventions(sized: Sized) -> None:
    """Why one source says 8 bytes for each parameter and another 20."""
    recipe = with_optimizer(RECIPES[sized.training.recipe], sized.training.optimizer)
    st.header("Bytes for each parameter: which figure do you mean?")
    st.markdown(
        f"Your settings hold **{recipe.bytes_per_param:g} bytes** for each parameter before "
        f"any activation: weights {recipe.weights:g}, gradients {recipe.gradients:g}, "
        f"optimizer {recipe.states:g}. Sources count differently:"
    )
    n = sized.chosen.n_params
    usual = sized.training.optimizer == "adamw"
    lines = [
        "| bytes | of this model | counts | leaves out | used by |",
        "| ---: | ---: | --- | --- | --- |",
    ]
    for c in CONVENTIONS:
        mark = " (yours)" if usual and sized.training.recipe in c.recipes else ""
        cells = (
            f"**{c.bytes_per_param:g}**{mark}",
            bytes_text(c.bytes_per_param * n),
            c.counts,
            c.ignores,
            c.used_by,
        )
        lines.append(f"| {' | '.join(cells)} |")
    st.markdown("\n".join(lines))


# -- the model ------------------------------------------------------------------------------------


def _kinds(chosen: sizing.Chosen) -> str:
    kinds = chosen.shape.kinds()
    return ", ".join(f"{n} × {layer.name}" for layer, n in kinds.items())


def model(sized: Sized) -> None:
    """Layers by type, counts with their conventions, caches and file sizes."""
    chosen = sized.chosen
    st.header(f"What {plain(chosen.name)} is")
    facts: list[tuple[str, str]] = [
        ("Layers", f"{chosen.shape.n_layer}: {_kinds(chosen)}"),
        ("Parameters, by the op table", count(chosen.n_params)),
    ]
    if chosen.n_active != chosen.n_params:
        facts.append(("of them met by one token", count(chosen.n_active)))
    each = CACHE_FORMATS[sized.serving.cache_format].bytes_per_number
    per_token = bytes_per_token(chosen.shape, each)
    facts.append(
        ("Keys and values of one token", f"{bytes_text(float(per_token.n))} in {_caches(chosen)}")
    )
    if chosen.model is not None:
        m = chosen.model
        if m.params_published is not None:
            same = " (the same)" if m.params_published == chosen.n_params else ""
            facts.append(("Published", f"{count(m.params_published)}{same}: {m.count_convention}"))
        if m.active_convention:
            facts.append(("Active parameters", m.active_convention))
        if m.train_tokens:
            facts.append(("Trained on", f"{m.train_tokens / 1e12:g} T tokens"))
        if m.from_memory:
            facts.append(("Not looked up", f"{', '.join(m.from_memory)}: from memory"))
        facts.append(("Source", m.source))
    if chosen.imported is not None:
        own = chosen.imported
        for label, notes in (("Fields not understood", own.unknown), ("Assumed", own.assumed)):
            facts.append((label, "; ".join(notes) or "none"))
        for label, value in (("Format in the file", own.dtype), ("Quantised", own.quantisation)):
            if value:
                facts.append((label, value))
    st.markdown("\n".join(f"- {name}: {plain(value)}" for name, value in facts))
    folded.expander("Size of its weights in every format", "formats", lambda: _formats(chosen))


def _formats(chosen: sizing.Chosen) -> None:
    names = weight_formats()
    sizes = [float(weights_bytes(chosen.shape, name).n) for name in names]
    st.table(
        {
            "format": [_title(name) for name in names],
            "bytes": [both_units(size) for size in sizes],
            "bits for each weight": [f"{8 * s / chosen.n_params:.3f}" for s in sizes],
            "what stays wider": [stays(name) for name in names],
        },
        hide_index=True,
        alt="Size of the weights in each format",
    )


def _title(name: str) -> str:
    custom = CUSTOMS.get(name)
    return f"{name}: {custom.title}" if custom is not None else name


def _caches(chosen: sizing.Chosen) -> str:
    parts = []
    for kept in kept_by_kind(chosen.shape):
        window = f", at most {count(kept.window)} tokens" if kept.window else ""
        state = f", a state of {count(kept.state)} numbers" if kept.state else ""
        parts.append(f"{kept.n_layers} {kept.kind} layers{window}{state}")
    return "; ".join(parts)


# -- the ledger -----------------------------------------------------------------------------------


def ledger(sized: Sized) -> None:
    """What each op keeps for backward, and why."""
    st.header("What is kept for backward, op by op")
    rows = kept(sized)
    total = sum(row[3] for row in rows)
    if not rows:
        st.markdown("Nothing is kept.")
        return
    top = rows[0]
    st.markdown(
        f"Together **{bytes_text(total)}** at the end of forward. The most is kept by "
        f"`{top[0]}`: {bytes_text(top[3])}, {100 * top[3] / total:.0f} % of it."
    )
    folded.expander(f"All {len(rows)} rows", "ledger", lambda: _all_kept(sized))


def _all_kept(sized: Sized) -> None:
    rows = kept(sized)
    total = sum(row[3] for row in rows)
    st.table(
        {
            "op": [row[0] for row in rows],
            "in each layer": [bytes_text(row[1]) for row in rows],
            "layers": [count(row[2]) for row in rows],
            "together": [bytes_text(row[3]) for row in rows],
            "share": [f"{100 * row[3] / total:.1f} %" for row in rows],
            "because of": [row[4] for row in rows],
        },
        hide_index=True,
        alt="Bytes that each op keeps for backward",
    )
    st.download_button(
        "Take it as CSV",
        data=lambda: ledger_csv(sized),
        file_name=f"{sized.chosen.slug}-kept.csv",
        mime="text/csv",
    )


def kept(sized: Sized) -> list[tuple[str, int, int, int, str]]:
    """(op, bytes in a layer, layers, bytes together, why), most first."""
    shape = replace(sized.chosen.shape, attention=sized.training.attention)
    ops = model_ops(shape, train_step(sized.training))
    rows = [
        (
            op.id.replace(".{i}", ""),
            op.saved_bytes,
            op.repeat,
            op.repeat * op.saved_bytes,
            op.saved_because,
        )
        for op in ops
        if op.saved_bytes
    ]
    return sorted(rows, key=lambda row: -row[3])


def ledger_csv(sized: Sized) -> str:
    """The same as a file: a header, a line a row, then the sum."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("op", "bytes_per_layer", "layers", "bytes", "because"))
    rows = kept(sized)
    writer.writerows(rows)
    writer.writerow(("sum", "", "", sum(row[3] for row in rows), ""))
    return text.getvalue()
