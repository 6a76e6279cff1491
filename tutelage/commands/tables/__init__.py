"""Tables that verbs print on standard output."""
