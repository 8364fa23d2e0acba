#!/usr/bin/env bash
# check-skips.sh LOG: fails on a test that was skipped for a reason that .ci/allowed-skips does not know.
set -euo pipefail
cd "$(dirname "$0")/.."

known=$(grep -vE '^(#|$)' .ci/allowed-skips || true)
unknown=0
while IFS= read -r line; do
    if [ -z "$known" ] || ! grep -qxF -f <(printf '%s\n' "$known") <<<"$line"; then
        echo "not in .ci/allowed-skips: $line" >&2
        unknown=1
    fi
done < <(grep -E '^skipped: ' "$1" | sort -u)
exit "$unknown"
