"""Every on-policy algorithm as a value: `recipe.py` is the template, most other files are an algorithm each."""
