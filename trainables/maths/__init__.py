"""Formulas of the paper as pure functions: tensors in, tensors out."""
