"""Shapes, specs, predictions, recordings and engines of Bothways; knows nothing of any page."""
