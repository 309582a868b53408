"""Frame of every page: navigation, theme, and the check of a link before anything else reads it.

Streamlit runs this file, either through `app.py` or by itself on hosts that know no `st.App`.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402  after the root is importable

from components import asking, runs, settings  # noqa: E402

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
    page = st.navigation(
        [
            st.Page(PAGES / "home.py", title="Bothways", default=True, visibility="hidden"),
            st.Page(PAGES / "training.py", title="Training", url_path="training"),
            st.Page(PAGES / "inference.py", title="Inference", url_path="inference"),
        ]
    )
    controls = asking.CONTROLS if page.url_path == "inference" else settings.CONTROLS
    settings.drop_bad_parameters(controls)
    page.run()


main()
