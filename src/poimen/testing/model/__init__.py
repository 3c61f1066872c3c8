"""The intent protocol as a small machine, every state of it, and its traces on the real kernel."""
