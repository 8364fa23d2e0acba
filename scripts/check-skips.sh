#!/usr/bin/env bash
# check-skips.sh LOG: fails on a test that was skipped for a reason that .ci/allowed-skips does not know.
set -euo pipefail
cd "$(dirname "$0")/.."

unknown=0
while IFS= read -r reason; do
    if ! grep -qxF -e "$reason" .ci/allowed-skips; then
        echo "not in .ci/allowed-skips: $reason" >&2
        unknown=1
    fi
done < <(grep -oE '(^|: )skipped: .*' "$1" | sed 's/^: //' | sort -u)
exit "$unknown"
