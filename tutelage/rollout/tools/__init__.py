"""Tools that a policy calls within an episode.

tool            the value: a function, its JSON schema, its limits; the toolbox that answers calls
arguments       arguments of a call: their JSON, and the check against the schema
builtin         tools by their names on the command line
calculator      arithmetic in fractions
python_process  a program in a process of its own
isolation       the script that limits this process; imports nothing of the package
search          the rows of a file by BM25
"""
