"""What each address does: functions from a `Call` to a response."""
