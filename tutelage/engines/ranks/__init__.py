"""Several processes that compute one run together.

Each process is a rank. All ranks execute the same program on the same data. Rows are dealt to them, and sums over rows
are summed over ranks, so that every rank holds the same weights and the same figures after every step. torchrun or
`launch` starts the processes; `torch.distributed` carries the messages (gloo between CPUs, NCCL between GPUs).
"""
