"""Page handlers: functions from a `Call` to a response."""
