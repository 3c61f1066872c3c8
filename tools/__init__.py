"""Programs that keep this repository; no part of the package."""
