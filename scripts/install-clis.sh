#!/bin/sh
# Install the agent CLIs that the harnesses `claude-code` and `qwen-code` drive, at the versions whose behaviour is
# known, into a folder of your own:
#
#     scripts/install-clis.sh ~/agent-clis && export INTERNALIZE_CLI_DIR=~/agent-clis
#
# Claude Code is proprietary: by installing it you accept its vendor's terms, and whether they allow what you want to do
# with it is for you to check. Nothing of either CLI is part of this project. Node 22 is installed beside them if the one
# on PATH is older. A folder that holds exactly this already is left as it is.
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

if [ "$(cat "$1/installed" 2>/dev/null)" != "$packages" ]; then
    if ! command -v npm >/dev/null; then
        echo "$0: npm is missing; install Node.js with npm (on Debian: apt-get install npm), then run this again" >&2
        exit 1
    fi
    mkdir -p "$1"
    rm -f "$1/installed"
    # shellcheck disable=SC2086  # a list of words
    npm install --prefix "$1" --no-audit --no-fund --loglevel=error --save-exact $packages
    echo "$packages" >"$1/installed"
fi
echo "export INTERNALIZE_CLI_DIR=$(cd "$1" && pwd)"
