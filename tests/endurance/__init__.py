"""Load and faults: what the built fork holds without losing anything."""
