"""What programs exchange with a study, on both sides of the wire.

values.py    what the API takes and answers, as dataclasses: its description is made of them, and clients return them
adding.py    rows that a program sends, as questions
client.py    StudyClient: the API of a study from Python
signing.py   signatures of webhooks, and how a receiver verifies them
reading.py   how far a study is, from its database
watching.py  what somebody waits for, and where progress is read
"""
