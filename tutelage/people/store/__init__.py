"""Database access; all SQL of the project is in this package."""
