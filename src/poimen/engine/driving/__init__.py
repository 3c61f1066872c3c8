"""One branch of one run under one lease: replayed, driven on, ended, rested or let go."""
