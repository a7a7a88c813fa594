#!/bin/sh
# Runs a command in a container, as a job: gpuwise submit --gpus 1 -- sh examples/docker_run.sh IMAGE COMMAND...
# It has the job's GPUs, working folder and checkpoints, and the variables by which the SDK and torch.distributed find
# their way. GPUWISE_TOKEN is one of them: by it the container's processes are suspended, resumed and killed with the job.
# ENGINE may be podman, and OPTIONS more options of `run`, such as "--network host --ipc host --memory 64g".
set -eu
if [ -z "${GPUWISE_TOKEN-}" ] || [ $# -lt 2 ]; then
    echo "docker_run.sh: to be submitted, as in: gpuwise submit -- sh docker_run.sh IMAGE COMMAND..." >&2
    exit 2
fi
mkdir -p "$GPUWISE_CHECKPOINT_DIR"
for folder in "$PWD" "$GPUWISE_ATTEMPT_DIR" "$GPUWISE_CHECKPOINT_DIR" "$GPUWISE_SOCKET"; do
    set -- --volume "$folder:$folder" "$@"
done
names='GPUWISE_[A-Z_]*\|RANK\|LOCAL_RANK\|WORLD_SIZE\|LOCAL_WORLD_SIZE\|MASTER_ADDR\|MASTER_PORT'
for name in $(env | sed -n "s/^\($names\)=.*/\1/p"); do
    set -- --env "$name" "$@"
done
if [ "${NVIDIA_VISIBLE_DEVICES:-void}" != void ]; then # void is a CPU stand-in
    set -- --gpus "\"device=$NVIDIA_VISIBLE_DEVICES\"" "$@"
fi
# shellcheck disable=SC2086  # options are words
exec "${ENGINE:-docker}" run --rm --init --user "$(id -u):$(id -g)" --workdir "$PWD" ${OPTIONS-} "$@"
