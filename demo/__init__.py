"""Run the same script on the base and on the fork, and show side by side what each user saw."""
