"""The names of the package, which base and fork share."""

DIST_NAME = 'pydantic-ai-slim'
"""The name of the distribution, the same for base and fork, so that whatever depends on the base resolves to the fork."""

PACKAGE = 'pydantic_ai'
"""The folder of the importable package, in a wheel and in an environment."""

UPSTREAM_FOLDER = 'pydantic_ai_slim'
"""The folder of upstream's repository that holds `PACKAGE`; paths in patches start with it."""

PACKAGE_PATH = f'{UPSTREAM_FOLDER}/{PACKAGE}'
"""Where patches have the package. A build takes what they change there, and nothing else."""
