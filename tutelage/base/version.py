"""The version of the package, and the address where it is published."""

__version__ = "0.1.0"

REPOSITORY = ""
"""Public address of the repository, such as https://github.com/OWNER/NAME; empty until it is published. The metadata
of the package, the badge of the README, the citation and the links of the site that leave docs/ are made from it:
after a change run `make pages`."""
