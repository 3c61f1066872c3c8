"""The report of a night: what each harness has reached, which controls it has caught, what was found."""
