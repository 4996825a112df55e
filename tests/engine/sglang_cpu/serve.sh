#!/bin/sh
# Serve a model folder by a real SGLang on the CPU: serve.sh PYTHON MODEL PORT (README.md says how PYTHON is made).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/shim" SGLANG_USE_CPU_ENGINE=1 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
exec "$1" -m sglang.launch_server --model-path "$2" --host 127.0.0.1 --port "$3" --device cpu \
    --attention-backend torch_native --dtype float32 --skip-tokenizer-init --grammar-backend none \
    --disable-overlap-schedule --mem-fraction-static 0.2 --max-total-tokens 40000 --max-running-requests 32 \
    --skip-server-warmup
