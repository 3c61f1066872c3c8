"""The command line: parse, call, print. Everything that it knows, the engine told it."""
