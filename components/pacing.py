"""Latency's own settings, beside those that it shares with Memory (components/sizing.py)."""

from dataclasses import dataclass

import streamlit as st

from components import settings, sizing
from components.settings import Control
from components.sizing import Sized
from components.theme import count

PROMPTS = tuple(str(2**i) for i in range(18))
WORKS = {"training step": "train", "prompt": "prefill", "each token": "decode"}

OWN = {
    c.key: c
    for c in (
        Control(
            key="prompt",
            label="Prompt, in tokens",
            help="Read in one pass before the first token is written.",
            default="1024",
            widget="scale",
            options=PROMPTS,
        ),
        Control(
            key="ops",
            label="Op by op of",
            help="Whose ops are listed.",
            default="each token",
            widget="choice",
            options=tuple(WORKS),
        ),
        Control(
            key="step_ms",
            label="Your step time, in ms",
            help="Of one training step on one device with the settings of this page. 0: what is "
            "predicted here.",
            default=0,
            widget="whole",
            high=100_000_000,
        ),
        Control(
            key="claim",
            label="A speed you were told",
            help="Tokens a second of one answer by this model on this device, from a headline or a "
            "data sheet. 0: none.",
            default=0,
            widget="whole",
            high=100_000_000,
        ),
        Control(
            key="accept",
            label="Drafted tokens accepted",
            help="How often the model would have written the drafted token itself.",
            default=80,
            widget="whole",
            high=100,
            step=5,
            shown_as="%d %%",
        ),
        Control(
            key="draft",
            label="Tokens drafted at once",
            help="By the small model, before the large one checks them in one trip.",
            default=4,
            widget="whole",
            low=1,
            high=16,
        ),
        Control(
            key="draft_cost",
            label="Cost of a drafted token",
            help="A trip of the small model, in percent of one of the large model.",
            default=10,
            widget="whole",
            high=100,
            step=5,
            shown_as="%d %%",
        ),
    )
}
CONTROLS = {**sizing.CONTROLS, **OWN}
contradictions = sizing.contradictions


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """What the sidebar says."""

    sized: Sized
    prompt: int  # tokens


def panel() -> Paced:
    """Draw the settings."""
    sized = sizing.panel()
    prompt, context = int(setting("prompt")), sized.serving.context
    if prompt > context:
        st.caption(
            f"A prompt of {count(prompt)} tokens is longer than a context of {count(context)}: "
            "its time is that of so many read, but they would not be held."
        )
    return Paced(sized=sized, prompt=prompt)


def setting(key: str) -> str | int:
    """Draw one of the settings where its section stands; its value."""
    return settings.widget(OWN[key])
