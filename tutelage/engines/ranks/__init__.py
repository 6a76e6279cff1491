"""Distributed runs over several processes.

Each process is a rank. All ranks execute the same program on the same data. Rows are distributed over ranks and sums
over rows are reduced over ranks, so all ranks have the same weights and metrics after every step. torchrun or `launch`
starts the processes; they communicate by `torch.distributed` (gloo between CPUs, NCCL between GPUs).
"""
