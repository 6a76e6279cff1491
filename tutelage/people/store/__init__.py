"""The database: the only SQL of the project lives in this package."""
