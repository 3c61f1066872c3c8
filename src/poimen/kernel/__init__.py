"""What poimen knows, as pure data and functions."""
