"""What the built fork does: the points of the contract, the same tests for every line."""
