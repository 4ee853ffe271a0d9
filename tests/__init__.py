"""The tests. Those of the built fork share what they are made of, so they are a package."""
