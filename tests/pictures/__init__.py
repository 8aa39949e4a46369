"""The pictures of README and site, drawn from real runs: `python -m tests.pictures` writes them."""
