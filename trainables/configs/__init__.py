"""What may be set of each method, one file per method; found by walking this folder."""
