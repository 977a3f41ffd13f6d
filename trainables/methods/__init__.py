"""One file per method; found by walking this folder."""
