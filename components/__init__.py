"""What pages are made of: settings, runs, widgets, colours, the unit of comparison."""
