"""The pages of each address: functions from a `Call` to a response."""
