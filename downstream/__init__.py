"""Projects that use the fork as anybody would, each in a folder of its own, and what builds and tests them."""
