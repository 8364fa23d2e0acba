#!/usr/bin/env bash
# The package for Python: built as a wheel, installed into an environment under target/, and tested against real nodes.
#
#   test-python.sh            all of it
#   test-python.sh prepare    the environment alone, with the tools
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export VERBENA=${VERBENA:-$target/debug/verbena}
environment=$target/python

if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "skipped: no Python of 3.11 or later that makes environments is installed"
    # `make setup` installs it.
    exit "$([ -z "${CI:-}" ] && echo 0 || echo 1)"
fi

# The tools of the versions that are named here. An environment of other tools, or that was made elsewhere, is made anew.
tools="maturin==1.16.0 pytest==9.2.0 mypy==2.4.1 numpy==2.4.6 django==5.2.9 flask==3.1.2 uvicorn==0.38.0 sqlalchemy[asyncio]==2.1.9 aiosqlite==0.22.1"
if [ "$(cat "$environment/tools" 2>/dev/null)" != "$tools in $environment" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment"
    # shellcheck disable=SC2086
    "$environment/bin/pip" install --quiet --disable-pip-version-check $tools
    echo "$tools in $environment" >"$environment/tools"
fi
[ "${1:-}" != prepare ] || exit 0
[ -x "$VERBENA" ] || cargo build --locked --bin verbena

rm -rf "$environment/wheels"
export PATH=$environment/bin:$PATH VIRTUAL_ENV=$environment
maturin build --quiet --locked --profile dev --manifest-path adapters/python/Cargo.toml --target-dir "$target" --out "$environment/wheels"
pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$environment"/wheels/*.whl
# It leaves its files where it runs. Before 3.12 the interpreter has the buffers of a type without a name for them.
(cd "$environment" && python -m mypy.stubtest --concise --ignore-unused-allowlist --allowlist <(echo 'verbena\.(_native\.)?(Value|Window)\.__buffer__') verbena)
python -m mypy --config-file adapters/python/pyproject.toml --strict --no-error-summary --cache-dir "$environment/mypy" adapters/python/tests adapters/python/examples adapters/python/python/verbena
# Guest books of the frameworks behind the recipes of the documents. They wait more than they work, as the tests do, so both run at once.
books=$environment/guestbooks.log
python examples/guestbooks/check.py django flask >"$books" 2>&1 &
checking=$!
wrong=0
# A page of the documents that imports the package.
scripts/run-page.py docs/howto/lock-from-python.md || wrong=$?
# A wait that does not end says where, and fails.
(cd adapters/python && PYTHONDONTWRITEBYTECODE=1 timeout 300 python -m pytest -o faulthandler_timeout=60) || wrong=$?
wait "$checking" || wrong=$?
cat "$books"
exit "$wrong"
