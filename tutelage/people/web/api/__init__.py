"""The HTTP API for programs, below `/api/v1`.

table.py        all routes, with required rights, and their OpenAPI 3.1 description
dispatch.py     requests: authentication, parsing, error responses
endpoints.py    handlers of the routes
changes.py      routes for the operations of a study
"""
