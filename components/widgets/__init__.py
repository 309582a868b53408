"""Canvas widgets: a typed Python door each; their modules stand in components/static."""
