"""What every command stands on: how it is declared, the log that it opens, what it prints."""
