"""Settings of the Latency page beside those it shares with Memory."""

from components import sizing

CONTROLS = {**sizing.CONTROLS}
