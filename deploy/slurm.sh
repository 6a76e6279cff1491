#!/usr/bin/env bash
# One run over several nodes by Slurm: sbatch --nodes 4 deploy/slurm.sh improve --model ... --out /shared/runs/ppo --resume
#
# Every node starts one torchrun, which starts a process for each GPU. Slurm's time limit sends SIGTERM two minutes
# before the end, so that the run saves its state; with --requeue and --resume it continues in the next job.
#SBATCH --job-name=tutelage
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --output=%x-%j.out
set -euo pipefail

HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export HEAD=${HOSTS%%$'\n'*}
export NODES=$SLURM_JOB_NUM_NODES
export GPUS=${SLURM_GPUS_ON_NODE:-8}
export PORT=$((29400 + SLURM_JOB_ID % 1000))
export RUN_ID=$SLURM_JOB_ID
export OMP_NUM_THREADS=$((${SLURM_CPUS_PER_TASK:-64} / GPUS))

exec srun --kill-on-bad-exit=1 "$(dirname "${TUTELAGE_SCRIPT:-$SLURM_SUBMIT_DIR/deploy/slurm.sh}")/torchrun.sh" "$@"
