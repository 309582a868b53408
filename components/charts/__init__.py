"""Data to Plotly figures; no page, no widget. Predicted is a line, measured a filled mark."""
