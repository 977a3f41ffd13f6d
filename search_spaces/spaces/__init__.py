"""Search spaces: one file per method, each with ``SPACES`` by name."""
