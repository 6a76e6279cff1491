"""Values and clients for programs that work with a study.

api_values.py      requests and responses of the API as dataclasses, which its description and clients use
new_rows.py        rows that a program sends, as questions
client.py          StudyClient: the API of a study from Python
signatures.py      signatures of webhooks, and how a receiver verifies them
study_progress.py  the progress of a study, from its database or API, and conditions to wait for
"""
