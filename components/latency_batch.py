"""Batch and context: what one gives to throughput and takes from latency, what the other costs."""

from dataclasses import replace

import streamlit as st

from components.latency_times import BATCHES, COLOURS, Look
from components.theme import bytes_text, count, rate_text, seconds_text, times_text
from components.widgets.logchart import Axis, Line, LogChart, Point, Points, Reference, logchart
from core.architecture import Experts
from core.device_times import COMPUTE
from core.forecast import Outlook
from core.quantised import weights_bytes
from core.roofline import critical_batch
from core.work_columns import distinct_experts

CONTEXTS = tuple(2**i for i in range(7, 21))
NAMED = (1, 16, 256, 1024)


def section(look: Look, batches: dict[int, Outlook]) -> None:
    """Both charts; of a mixture two more."""
    if look.works["decode"].using is None:
        return
    st.header("More at once: more tokens a second, each a little later")
    decodes = [batches[b] for b in BATCHES]
    contexts = [look.of("decode", replace(look.serving, context=n)) for n in CONTEXTS]
    left, right = st.columns(2)
    with left:
        logchart(frontier(look, decodes), key="latency-frontier")
        st.markdown(_of_batches(look, decodes))
    with right:
        logchart(by_context(look, contexts), key="latency-context")
        st.markdown(_of_contexts(look, contexts))
    mixtures = [layer.mlp for layer in look.shape.kinds() if isinstance(layer.mlp, Experts)]
    if mixtures:
        _experts(look, decodes, mixtures[0])


# -- batch ----------------------------------------------------------------------------------------


def frontier(look: Look, decodes: list[Outlook]) -> LogChart:
    """Tokens a second of all against the time of each, along the batch."""
    known = [(b, seen) for b, seen in zip(BATCHES, decodes, strict=True) if seen.seconds]
    points = [(float(s.seconds or 0), b / float(s.seconds or 1)) for b, s in known]
    turned = critical(look)
    marks: list[Points] = [
        Points(
            name="batch",
            colour=COLOURS["decode"],
            symbol="circle",
            items=[
                Point(
                    x=x,
                    y=y,
                    label=f"batch {count(b)}",
                    rows=(("waits for", s.bound[0]),),
                    named=b in NAMED,
                )
                for (b, s), (x, y) in zip(known, points, strict=True)
            ],
        )
    ]
    if turned is not None and known:
        seen = look.of("decode", replace(look.serving, batch_size=max(1, round(turned))))
        if seen.seconds:
            marks.append(
                Points(
                    name="critical batch",
                    colour="loss",
                    symbol="diamond",
                    items=[
                        Point(
                            x=seen.seconds,
                            y=seen.costs.n_tokens / seen.seconds,
                            label=f"critical batch {turned:,.0f}",
                            named=True,
                        )
                    ],
                )
            )
    return LogChart(
        x=Axis(title="time of each token", unit="s"),
        y=Axis(title="tokens a second, all sequences", unit="tokens"),
        series=[
            Line(
                name="along the batch",
                colour=COLOURS["decode"],
                points=points,
            ),
            *marks,
        ],
        height=360,
        summary="Throughput against latency as the batch grows: "
        + ", ".join(f"{b}: {rate_text(y)}" for (b, _), (_, y) in zip(known, points, strict=True)),
    )


def critical(look: Look) -> float | None:
    """Sequences from which on a product with the weights waits for arithmetic; None where the peak
    is unknown.
    """
    using = look.works["decode"].using
    if using is None or using.rates.peak_flops is None:
        return None
    return critical_batch(
        peak_flops=using.rates.peak_flops,
        bandwidth=using.rates.bandwidth_bytes_s,
        weight_bytes=weights_bytes(look.shape, look.serving.weight_format).n / look.n_params,
    )


def _of_batches(look: Look, decodes: list[Outlook]) -> str:
    first, last = decodes[0], decodes[-1]
    if not first.seconds or not last.seconds:
        return ""
    more = BATCHES[-1] * first.seconds / last.seconds
    said = (
        f"{count(BATCHES[-1])} sequences at once give {times_text(more)} the tokens a second of "
        f"one; each waits {times_text(last.seconds / first.seconds)} as long."
    )
    turned = critical(look)
    if turned is None:
        return said
    never = not any(s.bound[0] == COMPUTE for s in decodes)
    more_said = (
        " Yet most of the time goes to memory at any batch here: keys and values grow with it, and "
        "no sequence shares those."
        if never
        else ""
    )
    return (
        f"{said} A product with the weights waits for arithmetic from **{turned:,.0f} sequences** "
        f"on: peak × bytes of a weight ÷ (2 × bandwidth).{more_said}"
    )


# -- context --------------------------------------------------------------------------------------


def by_context(look: Look, contexts: list[Outlook]) -> LogChart:
    known = [(n, s) for n, s in zip(CONTEXTS, contexts, strict=True) if s.seconds]
    bands = [(float(n), *s.band) for n, s in known if s.band]
    return LogChart(
        x=Axis(title="tokens so far", unit="tokens"),
        y=Axis(title="time of each token", unit="s"),
        series=[
            Line(
                name="each token",
                colour=COLOURS["decode"],
                points=[(float(n), float(s.seconds or 0)) for n, s in known],
                band=bands,
            )
        ],
        lines=[
            Reference(
                at=look.shape.max_seq_len,
                label=f"made for {count(look.shape.max_seq_len)}",
                axis="x",
            )
        ],
        height=360,
        summary="Time of each token against the tokens before it.",
        beyond=look.beyond,
    )


def _of_contexts(look: Look, contexts: list[Outlook]) -> str:
    n = look.serving.context
    seen = look.works["decode"]
    cache, weights = float(seen.costs.cache_bytes.sum()), float(seen.costs.weights_bytes.sum())
    said = (
        f"After {count(n)} tokens each further one reads {bytes_text(weights)} of weights and "
        f"{bytes_text(cache)} of keys and values."
    )
    if cache == 0:
        return f"{said} However long the text, it reads no more."
    at = [
        c
        for c, s in zip(CONTEXTS, contexts, strict=True)
        if s.costs.cache_bytes.sum() > s.costs.weights_bytes.sum()
    ]
    first, last = contexts[0].seconds, contexts[-1].seconds
    if at:
        said += f" From about {count(at[0])} on keys and values are the larger part."
    if first and last:
        said += (
            f" At {count(CONTEXTS[-1])} a token takes {seconds_text(last)}, "
            f"{times_text(last / first)} as long as at {count(CONTEXTS[0])}."
        )
    return said


# -- mixtures -------------------------------------------------------------------------------------


def _experts(look: Look, decodes: list[Outlook], mixture: Experts) -> None:
    st.subheader("A mixture: memory follows all experts, speed those that are met")
    left, right = st.columns(2)
    met = [float(distinct_experts(mixture.n, mixture.top_k, b)) for b in BATCHES]
    each = [float(s.costs.weights_bytes.sum()) / b for b, s in zip(BATCHES, decodes, strict=True)]
    with left:
        logchart(
            LogChart(
                x=Axis(title="sequences at once", unit="1"),
                y=Axis(title="different experts met in a layer", unit="1", log=False, low=0),
                series=[
                    Line(
                        name="experts",
                        colour="optimizer",
                        points=list(zip(map(float, BATCHES), met, strict=True)),
                    )
                ],
                lines=[Reference(at=mixture.n, label=f"all {mixture.n}", strong=True)],
                height=300,
                summary=f"Experts met: {met[0]:.3g} with one sequence, {met[-1]:.3g} with "
                f"{BATCHES[-1]}, of {mixture.n}.",
            ),
            key="latency-experts",
        )
    with right:
        logchart(
            LogChart(
                x=Axis(title="sequences at once", unit="1"),
                y=Axis(title="bytes of weights read for each token", unit="B"),
                series=[
                    Line(
                        name="bytes a token",
                        colour="weights",
                        points=list(zip(map(float, BATCHES), each, strict=True)),
                    )
                ],
                height=300,
                summary=f"Bytes of weights for each token: {bytes_text(each[0])} with one "
                f"sequence, {bytes_text(each[-1])} with {BATCHES[-1]}.",
            ),
            key="latency-expert-bytes",
        )
    st.markdown(
        f"A token is sent to {mixture.top_k} of {mixture.n} experts; tokens of one batch go to "
        f"different ones. With 8 sequences a layer reads {met[3]:.3g} of them, with "
        f"{count(BATCHES[-1])} it reads {met[-1]:.4g}: $E\\,(1 - (1 - k/E)^{{T}})$. A dense model "
        "shares all of its weights from the second sequence on; a mixture begins to share late."
    )
