"""The bill of a run before it is paid: memory, operations, time and cost from closed forms, without a tensor.

workload.py      transformers in numbers, and what one step computes
hardware.py      GPUs by their data sheets, and machines made of them
token_budget.py  tokens of one forward pass, from the memory that is left
rank_memory.py   memory of a rank by part, for every way to shard
step_time.py     operations, bytes and seconds by phase
estimate.py      every setting of a run, and the cheapest that fits
"""
