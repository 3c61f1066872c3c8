"""The promises of poimen, each with a test that fails without it."""
