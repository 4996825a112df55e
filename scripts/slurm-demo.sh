#!/bin/sh
# Run a small study through the Slurm profile, on a real Slurm of four make-believe GH200 nodes on this machine, and show
# what went where. Called by `make slurm-demo`; needs slurm-wlm and munge, no root and no GPU.
set -eu
box=$(mktemp -d "${TMPDIR:-/tmp}/slurm-demo.XXXXXX")
trap 'internalize sandbox stop "$box" && rm -rf "$box"' EXIT
trap 'exit 130' INT TERM

internalize sandbox start "$box" >/dev/null
PATH="$box/bin:$PATH"
echo "== the cluster"
sinfo -N -p gpu -o "%N %T, %c CPUs, %m MB, %G"
echo "== internalize doctor"
internalize doctor --site "$box/site.yaml" --study config/mini.yaml --status-command squeue
echo "== snakemake --profile slurm (every rule a job; training on all sixteen GPUs)"
printf '  rules: {segment: {nodes: 4}}\n' >>"$box/site.yaml"
snakemake --profile slurm --configfile "$box/site.yaml" --directory "$box/work" \
    --slurm-status-command squeue --slurm-init-seconds-before-status-checks 2 --latency-wait 10 \
    --quiet all --config study="$PWD/config/mini.yaml" arms=recite
echo "== its jobs"
squeue -t all -S i -o "%6i %12P %3D nodes %18b %9T %6M %k"
internalize results "$box/work/results"
echo "== all of it lay in $box and is removed again"
