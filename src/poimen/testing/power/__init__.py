"""Power loss: what a process did to its files, every disk that a cut could leave, and what must be true of each."""
