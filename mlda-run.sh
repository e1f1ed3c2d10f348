#!/usr/bin/env bash
# The original verbs on a server behind SSH: ./mlda-run.sh sync | train-both | status | logs [RUN] | pull | stop | check
# The host is $OELM_HOST, or the entry `default` of remotes.yaml (docs/remote.md).
set -euo pipefail
cd "$(dirname "$0")"
python=${OELM_PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
study=${OELM_STUDY:-qk_freeze}
remote() { exec "$python" -m oelm remote "${OELM_HOST:-default}" "$@"; }
verb=${1:-help}
[ $# -eq 0 ] || shift
case $verb in
    check) remote check "$@" ;;
    sync) remote sync "$study" "$@" ;;
    train-both) remote run "$study" "$@" ;;
    status) remote status "$study" "$@" ;;
    logs) remote logs "$@" ;;
    pull) remote pull "$study" "$@" ;;
    stop) remote stop "$study" "$@" ;;
    *)
        echo "usage: ./mlda-run.sh check | sync | train-both | status | logs [RUN] [--follow] | pull | stop" >&2
        echo "the host: OELM_HOST=HOST, or the entry 'default' of remotes.yaml; the study: OELM_STUDY ($study)" >&2
        exit 2
        ;;
esac
