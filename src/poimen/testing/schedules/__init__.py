"""Programs in simulated time, in an order that a seed chooses: the same seed, the same schedule, to the last step."""
