"""A chat server in six steps, each of which is an app that runs: `make tutorial STEP=1`."""
