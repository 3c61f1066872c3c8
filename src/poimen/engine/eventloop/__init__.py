"""What the code of a run awaits: a small event loop whose order repeats itself in a replay."""
