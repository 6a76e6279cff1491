"""The HTTP API for programs, below `/api/v1`.

table.py        all routes, with required rights and the types of requests and responses
admitting.py    requests: authentication, parsing, error responses
endpoints.py    handlers of the routes
changes.py      routes for the operations of a study
describing.py   OpenAPI 3.1 description of the table
"""
