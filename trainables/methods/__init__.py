"""How each method learns, one file per method, named as its options in ``configs/``."""
