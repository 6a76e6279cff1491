#!/usr/bin/env bash
# One run over several nodes by torchrun: start this script on every node, with the same flags.
#
#   HEAD=node0 NODES=4 GPUS=8 deploy/torchrun.sh improve --model ... --out /shared/runs/ppo
#
# HEAD   host name of one of the nodes, which all nodes reach
# NODES  number of nodes            GPUS  processes of each node
# PORT   a free port on HEAD        RESTARTS  how often the run is restarted after a failure
#
# --out must be on a file system that all nodes share. With RESTARTS above 0 the flags should include --resume.
set -euo pipefail

: "${HEAD:?the host name of one of the nodes}"
NODES=${NODES:-1}
GPUS=${GPUS:-8}
PORT=${PORT:-29400}
RESTARTS=${RESTARTS:-0}

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-8}

exec torchrun \
    --nnodes "$NODES" \
    --nproc-per-node "$GPUS" \
    --rdzv-backend c10d \
    --rdzv-endpoint "$HEAD:$PORT" \
    --rdzv-id "${RUN_ID:-tutelage}" \
    --max-restarts "$RESTARTS" \
    -m tutelage "$@"
