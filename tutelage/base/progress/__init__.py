"""What a process does at the moment, and how far it is:

phases.py    the parts of the work, told where they happen
status.py    their state at a moment as one line
displays.py  when which line is written to a stream
terminal.py  the display of a command, on standard error
"""
