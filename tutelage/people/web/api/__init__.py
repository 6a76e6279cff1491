"""The HTTP API for programs, below `/api/v1`.

dispatch.py     requests: authentication, parsing, error responses
endpoints.py    functions of the routes, their table with required rights, and its OpenAPI 3.1 description
changes.py      routes that change a study: its operations, and new rows
"""
