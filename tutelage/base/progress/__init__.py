"""Progress of a process:

phases.py    the parts of the work, reported where they happen
status.py    their current state as one line
displays.py  when a line is written to a stream
"""
