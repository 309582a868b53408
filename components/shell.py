"""Frame of every page: navigation, theme, and the check of a link before anything else reads it.

Streamlit runs this file, either through `app.py` or by itself on hosts that know no `st.App`.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402  after the root is importable

from components import asking, both, pacing, runs, settings, sizing  # noqa: E402

PAGES = ROOT / "pages"


def main() -> None:
    static = ROOT / "components" / "static"
    st.set_page_config(
        page_title="Bothways",
        page_icon=str(static / "icon.svg"),
        layout="wide",
        initial_sidebar_state=330,
    )
    st.logo(str(static / "logo.svg"), size="large", icon_image=str(static / "icon.svg"))
    runs.prepare()
    st.html(Path(__file__).with_name("page.css"))
    training = st.Page(PAGES / "training.py", title="Training", url_path="training")
    page = st.navigation(
        [
            st.Page(PAGES / "home.py", title="Both ways", default=True),
            training,
            st.Page(PAGES / "inference.py", title="Inference", url_path="inference"),
            st.Page(PAGES / "memory.py", title="Memory", url_path="memory"),
            st.Page(PAGES / "latency.py", title="Latency", url_path="latency"),
            st.Page(PAGES / "runs.py", title="Runs", url_path="runs"),
        ]
    )
    of_training = {*settings.CONTROLS, runs.RUN, "text"}
    if page.url_path == "" and of_training & st.query_params.keys():
        # A link from when the address without a path was the Training page's.
        st.switch_page(training, query_params=_link())
    rules = {
        "": (both.CONTROLS,),
        "inference": (asking.CONTROLS, asking.contradictions),
        "memory": (sizing.CONTROLS, sizing.contradictions),
        "latency": (pacing.CONTROLS, sizing.contradictions),
        "runs": (sizing.RUNS_CONTROLS,),
    }.get(page.url_path, (settings.CONTROLS,))
    link = _link()
    settings.drop_bad_parameters(*rules)
    if _link() != link:  # widgets read the link that the visit began with: begin it anew
        st.switch_page(page, query_params=_link())
    page.run()


def _link() -> dict[str, list[str]]:
    """Every value of a key: `items()` would give the last of several inputs only."""
    return {key: st.query_params.get_all(key) for key in st.query_params}


main()
