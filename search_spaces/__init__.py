"""What to run: sweeps and searches as data, and the presets of the paper."""
