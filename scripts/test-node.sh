#!/usr/bin/env bash
# The package for Node: packed as it would be published, installed into a directory under target/, and tested against real proxies.
#
#   test-node.sh            all of it
#   test-node.sh prepare    the directory alone, with the tools
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export VERBENA=${VERBENA:-$target/debug/verbena}
place=$target/node

if ! node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null || ! command -v npm >/dev/null; then
    echo "skipped: no Node of 18 or later with npm is installed"
    # `make setup` installs it.
    exit "$([ -z "${CI:-}" ] && echo 0 || echo 1)"
fi

# Of the versions that are named here. A directory with others is made anew.
tools="express@5.3.0 express4@npm:express@4.21.2 compression@1.8.2 express-session@1.19.0 smol-toml@1.9.1 typescript@5.9.3 @types/node@20.19.0 @types/express@5.0.6"
quiet=(--no-audit --no-fund --no-update-notifier --loglevel=error --cache "$place/cache")
if [ "$(cat "$place/tools" 2>/dev/null)" != "$tools" ]; then
    rm -rf "$place"
    mkdir -p "$place"
    echo '{"private": true}' >"$place/package.json"
    # shellcheck disable=SC2086
    npm install --prefix "$place" --save-exact "${quiet[@]}" $tools
    echo "$tools" >"$place/tools"
fi
[ "${1:-}" != prepare ] || exit 0
[ -x "$VERBENA" ] || cargo build --locked --bin verbena

rm -rf "$place"/verbena-*.tgz "$place/test" "$place/node_modules/verbena"
npm pack "${quiet[@]}" --silent --pack-destination "$place" ./adapters/node >/dev/null
mkdir "$place/node_modules/verbena"
tar -xzf "$place"/verbena-*.tgz -C "$place/node_modules/verbena" --strip-components=1
cp -r adapters/node/test "$place/test"
cd "$place"
node_modules/.bin/tsc --noEmit --strict --module nodenext --target es2022 --types node test/types.ts
# A test that hangs fails, and says which.
timeout 300 node --test test/*.test.js
# The guest book of Express behind the recipe of the documents.
NODE_PATH=$place/node_modules python3 "$OLDPWD/examples/guestbooks/check.py" express
