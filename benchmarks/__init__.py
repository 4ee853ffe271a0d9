"""What the fork costs, beside its base. `python -m benchmarks` measures it; `docs/performance.md` says what comes out."""
