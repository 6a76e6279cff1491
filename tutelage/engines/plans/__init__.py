"""Cost estimates of a run before it starts: memory, operations, time and price in closed form, without tensors.

workload.py      sizes of transformers and the work of one step
hardware.py      GPUs by their data sheets, and clusters
token_budget.py  tokens of one forward pass, from available memory
rank_memory.py   memory of a rank by part, for every sharding mode
step_time.py     operations, bytes and seconds by phase
estimate.py      all settings of a run, and the cheapest that fits
"""
