"""The HTTP API for programs, below `/api/v1`.

table.py        every address, with the right that it takes and the types of what it takes and answers
admitting.py    one request: whose token it carries, what was sent, and the refusals
endpoints.py    what each address answers
changes.py      operations of a study as addresses
describing.py   the description of the table, as OpenAPI 3.1
"""
