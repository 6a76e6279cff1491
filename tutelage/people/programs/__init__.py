"""Access to a study from programs.

api_values.py      requests and responses of the API as dataclasses, for server, API description and client
client.py          StudyClient: Python client of the API
signatures.py      signatures of webhooks, and their verification
study_progress.py  progress of a study, from its database or API, and conditions to wait for
"""
