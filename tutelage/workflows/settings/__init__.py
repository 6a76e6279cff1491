"""Typed settings of the workflows: frozen dataclasses that import nothing heavy.

The text under a field is its help on the command line and its documentation in an editor.
"""
