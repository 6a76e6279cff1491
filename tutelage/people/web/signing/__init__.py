"""Sign-in of owners and reviewers without a link: through an OpenID provider or a trusted proxy."""
