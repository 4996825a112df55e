#!/bin/sh
# Install the agent CLIs that the harnesses `claude-code` and `qwen-code` drive, at the versions whose behaviour is
# known, into a folder of your own:
#
#     scripts/install-clis.sh ~/agent-clis && export INTERNALIZE_CLI_DIR=~/agent-clis
#
# Claude Code is proprietary: by installing it you accept its vendor's terms, and whether they allow what you want to do
# with it is for you to check. Nothing of either CLI is part of this project. Node 22 is installed beside them if the one
# on PATH is older.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 FOLDER" >&2
    exit 2
fi

case "$(uname -m)" in
    aarch64 | arm64) machine=arm64 ;;
    *) machine=x64 ;;
esac

packages="@anthropic-ai/claude-code@2.1.270 @qwen-code/qwen-code@0.24.4"
major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')
if [ "${major:-0}" -lt 22 ]; then
    packages="$packages node-linux-$machine@22.23.5"
fi

mkdir -p "$1"
# shellcheck disable=SC2086  # a list of words
npm install --prefix "$1" --no-audit --no-fund --loglevel=error --save-exact $packages
echo "export INTERNALIZE_CLI_DIR=$(cd "$1" && pwd)"
