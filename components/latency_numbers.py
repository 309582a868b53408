"""The chosen model's times in one sentence, and each number with its working."""

import functools
import math

import streamlit as st

from components import account, claims, folded
from components.latency_times import (
    Look,
    calibration_of,
    errors,
    exact_measurement,
    format_of,
    percent,
    span_text,
)
from components.theme import bytes_text, count, flops_text, plain, rate_text, seconds_text
from core.compare import Comparison
from core.device_times import UNKNOWN
from core.forecast import Outlook
from core.memory import Prediction
from core.specs import CalibrationSpec

QUANTITIES = {"train": "device_step_s", "prefill": "device_ttft_s", "decode": "device_tpot_s"}
WHAT = {
    "train": "a training step on {n} tokens",
    "prefill": "reading a prompt of {n} tokens",
    "decode": "each further token",
}


def headline(look: Look) -> None:
    """One sentence: how long each work takes, and what it waits for."""
    if not look.calibrated:
        _not_calibrated(look)
        return
    said = [_clause(look, work, seen) for work, seen in look.works.items() if seen.using]
    st.markdown(f"**{plain(look.name)}** on **{plain(look.device_name)}**: {'; '.join(said)}.")
    missing = {seen.using.missing for seen in look.works.values() if seen.using}
    for sentence in sorted(missing - {""}):
        st.caption(plain(sentence))
    if look.device is None:
        _of_this_machine(look)


def _clause(look: Look, work: str, seen: Outlook) -> str:
    n = look.prompt if work == "prefill" else look.training.seq_len
    batch = look.training.batch_size if work == "train" else look.serving.batch_size
    what = WHAT[work].format(n=f"{count(batch)} × {count(n)}" if batch > 1 else count(n))
    if work == "decode" and batch > 1:
        what += f" of {count(batch)} sequences"
    if seen.seconds is None:
        return f"{what} waits for a peak that is not published"
    least = "" if seen.local else "at least "
    bound, share = seen.bound
    part = "all" if share > 0.995 else percent(share)
    waits = f", {part} of it for {bound}" if bound != UNKNOWN else ""
    if seen.local is not None:
        waits = f", most of it for {seen.local.bound}"
    return f"{what} takes {least}**{seconds_text(seen.seconds)}**{waits}"


def _not_calibrated(look: Look) -> None:
    with st.container(border=True, key="claim-uncalibrated"):
        st.markdown("This machine  \n**not measured yet**")
        st.caption(
            "What it does in a second, bytes read and numbers multiplied, is measured once; every "
            "time on this page follows from that. Or choose a device of the catalogue."
        )
        account.calibration(1)


def _of_this_machine(look: Look) -> None:
    """What the calibration says, with its spread, and the button that measures again."""
    found = calibration_of(look, "decode")
    if found is not None:
        sets = [(p.working_set_bytes, p.read_bytes_per_s) for p in found.paces]
        slow, fast = min(r for _, r in sets), max(r for _, r in sets)
        product = [rate for _, rate in found.product_flops_per_s]
        busy = " The machine was busy meanwhile." if found.load_1min > 1.5 else ""
        st.caption(
            f"Measured of this machine with {found.weight_format} weights and "
            f"{found.threads} thread{'s' * (found.threads > 1)}: it reads "
            f"{bytes_text(sets[-1][1])} a second over {bytes_text(sets[-1][0])} of weights "
            f"({bytes_text(slow)} to {bytes_text(fast)} over smaller and larger sets), and "
            f"multiplies at {flops_text(max(product))}/s ({flops_text(min(product))}/s with two "
            f"vectors). It took {found.took_s:.0f} s.{busy}"
        )
    missing = [work for work, seen in look.works.items() if seen.using is None]
    if missing:
        st.caption("One of these formats is not measured yet on this machine.")
        account.calibration(CalibrationSpec().threads)


# -- numbers with their working -------------------------------------------------------------------


def numbers(look: Look) -> None:
    """The headline figures."""
    if not look.calibrated:
        return
    with st.grid(min_column_width=165, gap="small"):
        for work, seen in look.works.items():
            _card(look, work, seen)
        for quantity, work in (
            ("device_step_tokens_per_s", "train"),
            ("device_tokens_per_s", "decode"),
        ):
            _rate_card(look, quantity, look.works[work])


def _card(look: Look, work: str, seen: Outlook) -> None:
    measured = exact_measurement(look, work)
    with st.container(border=True, key=f"claim-{QUANTITIES[work]}"):
        label = claims.QUANTITIES[QUANTITIES[work]].label
        if seen.seconds is None or seen.using is None:
            st.markdown(f"{label}  \n**unknown**")
            st.caption("no peak is published" if seen.using else "not calibrated yet")
            return
        st.markdown(f"{label}  \n**{seconds_text(measured or seen.seconds)}**")
        st.caption(_caption(look, work, seen, measured))
        folded.popover(
            claims.MADE,
            f"made-{QUANTITIES[work]}",
            functools.partial(_working, look, work, seen, measured),
        )


def _working(look: Look, work: str, seen: Outlook, measured: float | None) -> None:
    assert seen.using is not None
    item = Comparison(prediction=_prediction(look, work, seen), measured=measured)
    claims.working(item, f"Rates: {plain(seen.using.source)}", _bands(look, work, seen))


def _caption(look: Look, work: str, seen: Outlook, measured: float | None) -> str:
    if measured is not None and seen.seconds is not None:
        off = seen.seconds / measured - 1
        return f"predicted {seconds_text(seen.seconds)} · {claims.error_text(off)}"
    if seen.local is not None and seen.band:
        return f"predicted · {span_text(seen.band)} with the error seen here"
    if seen.band and seen.seconds:
        low, high = seen.band
        if high / seen.seconds < 1.005:
            return "predicted · programs reach this floor"
        return f"at best · {span_text((low, high))} where programs were seen"
    return "at best · how near programs come is not published"


def _bands(look: Look, work: str, seen: Outlook) -> str:
    """What programs reach, and from whom that is known."""
    if seen.local is not None:
        found = errors(look, work, format_of(look, work))
        if found is None:
            return "Nothing like it was measured here yet: the band is 20 % either way."
        return (
            f"On this machine {found.n} such predictions were off by {100 * found.mean:.0f} % in "
            f"the mean, {claims.error_text(found.worst)} at worst."
        )
    assert seen.using is not None
    said = []
    for share, of in ((seen.using.memory, "bandwidth"), (seen.using.compute, "peak")):
        if share is not None:
            said.append(
                f"Programs reach {percent(share.low)} to {percent(share.high)} of the {of} "
                f"({plain(share.source)})."
            )
    return " ".join(said) or "Nothing is published of what programs reach on such a device."


def _prediction(look: Look, work: str, seen: Outlook) -> Prediction:
    assert seen.using is not None and seen.seconds is not None
    costs, rates = seen.costs, seen.using.rates
    if seen.local is not None:
        return Prediction(
            quantity=QUANTITIES[work],
            value=seen.seconds,
            inputs=(
                ("FLOPs", f"{seen.flops:.4g}"),
                ("method", "every op by what was measured of this machine (core.latency)"),
                ("waits for", seen.local.bound),
            ),
            arithmetic=seen.local.arithmetic,
        )
    bound, share = seen.bound
    peak = "unknown" if rates.peak_flops is None else f"{rates.peak_flops:.4g} FLOP/s"
    compute_s = 0.0 if rates.peak_flops is None else seen.flops / rates.peak_flops
    return Prediction(
        quantity=QUANTITIES[work],
        value=seen.seconds,
        inputs=(
            ("F, operations of all ops", f"{seen.flops:.4g}"),
            ("P, dense peak", f"{peak} ({seen.using.computes})"),
            (
                "M, bytes",
                f"{seen.n_bytes:.4g} = weights {costs.weights_bytes.sum():.4g} + keys and values "
                f"{costs.cache_bytes.sum():.4g} + handed on {costs.moved_bytes.sum():.4g}",
            ),
            ("b, bandwidth", f"{rates.bandwidth_bytes_s:.4g} B/s"),
            (
                "all at once",
                f"F / P = {seconds_text(compute_s)}, "
                f"M / b = {seconds_text(seen.n_bytes / rates.bandwidth_bytes_s)}",
            ),
            ("waits for", bound if math.isnan(share) else f"{bound}, {percent(share)} of the time"),
        ),
        arithmetic=f"op by op, the longer of the two: {len(costs.ids)} rows = {seen.seconds:.4g}",
    )


def _rate_card(look: Look, quantity: str, seen: Outlook) -> None:
    with st.container(border=True, key=f"claim-{quantity}"):
        label = claims.QUANTITIES[quantity].label
        if seen.seconds is None or seen.tokens_per_s is None:
            st.markdown(f"{label}  \n**unknown**")
            st.caption("no peak is published" if seen.using else "not calibrated yet")
            return
        st.markdown(f"{label}  \n**{rate_text(seen.tokens_per_s)}**")
        n = seen.costs.n_tokens
        if seen.band:
            slow, fast = (n / s for s in reversed(seen.band))
            st.caption(f"{rate_text(slow).split()[0]} to {rate_text(fast)} in the band")
        else:
            st.caption("at best")
        folded.popover(
            claims.MADE, f"made-{quantity}", functools.partial(_rate_working, quantity, seen)
        )


def _rate_working(quantity: str, seen: Outlook) -> None:
    assert seen.seconds and seen.tokens_per_s and seen.using
    n = seen.costs.n_tokens
    told = Prediction(
        quantity=quantity,
        value=seen.tokens_per_s,
        inputs=(("tokens at once", count(n)), ("t", f"{seen.seconds:.4g} s")),
        arithmetic=f"{n} / {seen.seconds:.4g} = {seen.tokens_per_s:.4g}",
    )
    origin = f"Rates: {plain(seen.using.source)}"
    claims.working(Comparison(prediction=told, measured=None), origin, "")
