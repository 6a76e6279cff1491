"""The bill of a run before it is paid: memory, operations, time and cost from closed forms, without a tensor.

transformer.py   a model in numbers
workload.py      what one step computes
hardware.py      GPUs by their data sheets, and machines made of them
tokens.py        tokens of one forward pass, from the memory that is left
memory.py        memory of a rank by part, for every way to shard
phases.py        operations, bytes and seconds by phase
estimate.py      every setting of a run, and the cheapest that fits
"""
