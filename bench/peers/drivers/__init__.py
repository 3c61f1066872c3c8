"""One script for each runtime, run by the Python of its own venv: the standard library and it, nothing else."""
