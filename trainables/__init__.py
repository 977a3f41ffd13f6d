"""The science of one cell, from its data to its metrics."""
