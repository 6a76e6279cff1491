"""Pages for owners and reviewers."""
