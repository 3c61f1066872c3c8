"""The rules of the house, as tests: what CONTRIBUTING.md asks for is checked here or by `make lint`."""
