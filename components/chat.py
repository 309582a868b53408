"""A chat with the model: each turn sends everything again, and none of it changes a weight.

A conversation is a list of runs, which the address names: only who has it can read what was said.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from components import account, answers, asking, runs
from components.asking import Asked, Panel
from components.charts.chats import prompts_figure, update_figure
from components.runs import RUN, View
from components.theme import (
    COLOURS,
    bytes_text,
    count,
    seconds_text,
    sentence,
    small_text,
)
from components.widgets.answer import answer, asks_to_be_polled
from core import limits
from core.answer_limits import refusal as refusal_of
from core.chats import Link, Turn, Update, history_of, link_of, said_in
from core.shapes import TransformerShape
from core.specs import FinetuneSpec, GenerateSpec
from core.trace import ARRAYS, EVENTS

CHAT = "chat"  # URL key of the conversation's runs, in order
_EVERY_S = 0.5
_PLOT = {"displaylogo": False, "displayModeBar": False}


def page(panel: Panel, shape: TransformerShape) -> None:
    """The whole conversation, and what it took."""
    links, last = _conversation()
    open_now = last is not None and last.open
    for i, link in enumerate(links[:-1] if open_now else links):
        _draw(i, link)
    if last is not None and last.attempt and open_now:
        st.fragment(_live, run_every=_EVERY_S)(last.attempt, len(links) - 1)
    elif last is not None and links and isinstance(links[-1], Update) and links[-1].after:
        _offer_changed(panel, f"{last.spec.spec_id}/{last.attempt}")
    _ask(panel, shape, links, busy=open_now)
    _turns_grow(links)
    if last is not None and isinstance(last.spec, GenerateSpec) and not open_now:
        _inside(last, shape)


# -- the conversation -----------------------------------------------------------------------------


def _conversation() -> tuple[list[Link], View[Any] | None]:
    """Every turn and step that the address names and that is kept, and the last one's run."""
    links: list[Link] = []
    last: View[Any] | None = None
    for attempt in _attempts():
        found = runs.found(attempt)
        link = _link(*found) if found else None
        if found is None:
            st.toast("A turn of this conversation is no longer kept here.")
        if found is None or link is None:
            continue
        links.append(link)
        last = runs.view_of(found[0], attempt, found[1])
    return links, last


def _attempts() -> list[str]:
    """In order, each once; the last one may stand alone, where every page has its run."""
    named = (*st.query_params.get(CHAT, "").split("."), st.query_params.get(RUN, ""))
    return [a for a in dict.fromkeys(named) if a]


def _link(spec: Any, folder: Path) -> Link | None:
    sizes = tuple(p.stat().st_size if p.exists() else 0 for p in _files(folder))
    return _read_link(spec, folder, sizes)


def _files(folder: Path) -> tuple[Path, Path]:
    return folder / EVENTS, folder / ARRAYS


@functools.lru_cache(maxsize=256)  # a turn is read once, and its numbers are few
def _read_link(spec: Any, folder: Path, _: tuple[int, ...]) -> Link | None:
    return link_of(spec, runs.read(folder))


def _add(attempt: str) -> None:
    """To what is one of the conversation: the run of another page's may be named too."""
    before = [a for a in _attempts() if (found := runs.found(a)) and _link(*found)]
    st.query_params[CHAT] = ".".join([*before, attempt])
    st.query_params[RUN] = attempt


def _new() -> None:
    """An empty conversation; the old one stays where its address is kept."""
    for key in (CHAT, RUN):
        st.query_params.pop(key, None)


# -- drawing --------------------------------------------------------------------------------------


def _draw(i: int, link: Link) -> None:
    if isinstance(link, Turn):
        _turn(link)
    else:
        _step(i, link)


def _turn(turn: Turn) -> None:
    with st.chat_message("user", avatar=":material/person:"):
        st.text(turn.spec.prompt)
    with st.chat_message("assistant", avatar=":material/arrow_forward:"):
        left, right = st.columns([3, 2], gap="medium")
        left.text(turn.told.text or "…")
        right.caption(_figures(turn))
        _broken(turn)


def _broken(link: Link) -> None:
    if link.broke_off:
        st.error(f"This broke off: {sentence(link.broke_off)}")


def _figures(turn: Turn) -> str:
    """What the turn sent and took, a line each."""
    told, scalars = turn.told, turn.told.scalars
    if not told.n_prompt:
        return "Getting ready."
    lines = [f"{count(told.n_prompt)} tokens sent"]
    if "ttft_s" in scalars:
        lines.append(f"first token after {seconds_text(scalars['ttft_s'])}")
    if "tpot_s" in scalars:
        lines.append(f"then {seconds_text(scalars['tpot_s'])} for each of {told.n_trips - 1}")
    if told.after:
        sign = "=" if told.before == told.after else "≠"
        lines.append(f"weights {told.before[:8]} {sign} {told.after[:8]}")
    return "  \n".join(lines)


def _step(i: int, update: Update) -> None:
    with st.chat_message("training", avatar=":material/sync_alt:"):
        if not update.after:
            st.markdown("**One training step on what was said**")
            if not update.broke_off:
                st.caption("Forward, loss, backward, update: under way.")
            _broken(update)
            return
        st.markdown(
            f"**One training step on what was said.** The model read the first "
            f"{update.spec.seq_len} tokens of the turn, and every weight moved by "
            f"{small_text(update.largest_change or 0)} at most: weights `{update.before[:8]}` ≠ "
            f"`{update.after[:8]}`. It is another model now."
        )
        colours = COLOURS["dark" if st.context.theme.type == "dark" else "light"]
        top = max(update.layers, key=lambda layer: layer[1], default=("", 0.0))
        st.plotly_chart(
            update_figure(update.layers, colours),
            key=f"update-{i}",
            config=_PLOT,
            alt="How far each layer's weights moved: the norm of the change, "
            f"{len(update.layers)} layers, most in {top[0]} with {small_text(top[1])}.",
        )
        st.caption(
            f"AdamW's first step moves every weight by about the learning rate, "
            f"{small_text(update.spec.learning_rate)}, so the layer with the most weights, "
            f"{top[0]}, moved furthest. An answer moves none."
        )
        with st.expander("The numbers", key=f"update-numbers-{i}"):
            st.table(
                {
                    "layer": [name for name, _ in update.layers],
                    "norm of the change": [small_text(norm) for _, norm in update.layers],
                },
                hide_index=True,
            )


def _offer_changed(panel: Panel, name: str) -> None:
    """Who answers next, where a step is the last that happened."""
    if panel.model == name:
        st.caption("The next turn asks the changed model, which the sidebar names.")
    else:
        st.button(
            "Ask the changed model", key="chat-changed", on_click=asking.use_model, args=(name,)
        )


def _live(attempt: str, i: int) -> None:
    """The last turn or step while it goes on."""
    found = runs.found(attempt)
    link = _link(*found) if found else None
    view: View[Any] | None = runs.view_of(found[0], attempt, found[1]) if found else None
    if found is None or link is None or view is None or not view.open:
        if found and isinstance(link, Update) and link.after:
            asking.use_model(f"{found[0].spec_id}/{attempt}")  # whom the next turn asks
        st.rerun()
    _draw(i, link)
    st.button("Stop", key="chat-stop", on_click=_stop, args=(view,))
    if isinstance(view.spec, GenerateSpec):
        answer(view, polled=asks_to_be_polled())


def _stop(view: View[Any]) -> None:
    runs.host().command(view.spec, view.attempt or "", "stop")


def _turns_grow(links: Sequence[Link]) -> None:
    """Tokens sent, turn after turn: a chatbot's memory is the text that it is sent again."""
    turns = [link for link in links if isinstance(link, Turn) and link.told.n_prompt]
    if len(turns) < 2:
        return
    # What is sent again: the prompt before, and its answer with the marks around it.
    sizes = [turn.told.n_prompt for turn in turns]
    again = [0]
    for turn, size in zip(turns, sizes[1:], strict=False):
        again.append(min(turn.told.n_prompt + turn.told.n_trips, size))
    parts = [(a, size - a) for a, size in zip(again, sizes, strict=True)]
    colours = COLOURS["dark" if st.context.theme.type == "dark" else "light"]
    st.header("What it remembers is what it is sent again")
    st.plotly_chart(
        prompts_figure(parts, colours),
        key="chat-prompts",
        config=_PLOT,
        alt="Tokens of the prompt by turn: " + ", ".join(count(size) for size in sizes) + ".",
    )
    st.markdown(
        f"Turn {len(turns)} sent {count(sizes[-1])} tokens, {count(parts[-1][0])} of them for the "
        "second time or more: between turns the model keeps nothing."
    )
    with st.expander("The numbers", key="chat-numbers"):
        st.table(
            {
                "turn": [str(i + 1) for i in range(len(turns))],
                "sent again": [count(a) for a, _ in parts],
                "new": [count(n) for _, n in parts],
                "first token after": [_time(t, "ttft_s") for t in turns],
                "each further token": [_time(t, "tpot_s") for t in turns],
            },
            hide_index=True,
        )


def _time(turn: Turn, name: str) -> str:
    return seconds_text(turn.told.scalars[name]) if name in turn.told.scalars else "–"


def _inside(view: View[GenerateSpec], shape: TransformerShape) -> None:
    """The last answer, played back, and what it held and took."""
    st.header("Inside the last answer")
    answer(view, polled=asks_to_be_polled() and view.open)
    told_prompt = view.trace.scalars("prompt_tokens")
    if told_prompt:
        n_prompt = int(told_prompt[0][1])
        account.numbers(Asked(spec=view.spec, shape=shape, n_prompt=n_prompt), view)


# -- asking ---------------------------------------------------------------------------------------


def _ask(panel: Panel, shape: TransformerShape, links: Sequence[Link], *, busy: bool) -> None:
    """The visitor's next words, and what else can be done with the conversation."""
    text = asking.message(disabled=busy, first=not links)
    if text:
        history = history_of(links)
        try:
            spec = asking.spec_of(panel, text, chat=True, history=history)
            asked = asking.counted(spec, shape)
        except ValueError as why:
            asking.keep_message(text, sentence(str(why)))
        refusal = refusal_of(asked.spec, shape, asked.n_prompt)
        if refusal is not None:
            asking.keep_message(text, answers.said_of(refusal))
        _add(runs.submit(asked.spec))
        st.rerun()
    turns = [link for link in links if isinstance(link, Turn)]
    if not turns:
        st.caption(
            "Say something. Words go to the model in its own template; nothing is kept but the "
            "runs that this address names, and nobody else is shown them."
        )
        return
    with st.container(horizontal=True, vertical_alignment="center", key="chat-bar"):
        _train_button(panel, turns[-1], links, busy=busy)
        st.button("New chat", key="chat-new", on_click=_new, disabled=busy)


def _train_button(panel: Panel, turn: Turn, links: Sequence[Link], *, busy: bool) -> None:
    """One update of all weights on the last turn; what it would take is predicted first."""
    spec = FinetuneSpec(model=turn.spec.model, text=said_in(turn), threads=panel.values["threads"])
    why = ""
    if busy or not turn.told.text:
        why = "There is no answer to learn from yet."
    elif links and isinstance(links[-1], Update):
        why = "This turn was learned from already."
    else:
        need = limits.need(spec)
        if not need.fits:
            why = (
                f"It would hold {bytes_text(need.peak_bytes)} at its peak; a run may take "
                f"{bytes_text(limits.max_run_bytes())} here."
            )
    st.button(
        "Take one training step on what was said",
        key="chat-train",
        disabled=bool(why),
        help=why
        or f"Forward, loss, backward, update: {bytes_text(limits.need(spec).peak_bytes)} at the "
        "peak, predicted. The weights change, and the next turns ask the changed model.",
        on_click=_train,
        args=(spec,),
    )


def _train(spec: FinetuneSpec) -> None:
    _add(runs.submit(spec))
