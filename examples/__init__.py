"""The cookbook: one module for each kind of state that a toolset can have. The docs' chapters are in `docs/cookbook`."""
