"""On-policy algorithms as values: `recipe.py` is the template, and most other files define one algorithm each."""
