#!/usr/bin/env bash
# What `make package` runs: makes a release in target/packages. docs/reference/OPERATING.md says what is in it.
#
#   package.sh                               builds everything
#   PROGRAM=target/debug/verbena package.sh  packs a program, and builds the rest by its profile (dev): for looking at the packages themselves
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
made=$target/dist/package
release=$target/packages
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
profile=dist
folder=dist
if [ -n "${PROGRAM:-}" ]; then
    profile=dev
    folder=debug
fi

build() { cargo build --locked --profile "$profile" "$@"; }
# Of another version nothing stays: a user who takes what is there takes this one.
rm -rf "$made" "$release" "$target"/debian/verbena_*.deb
mkdir -p "$made/man" "$release"

# The program, its manual and its completions.
if [ -z "${PROGRAM:-}" ]; then
    build -p verbena-cli --bin verbena --features packages
    built=$target/dist/verbena
else
    built=$(realpath "$PROGRAM")
fi
program=$made/verbena
strip -o "$program" "$built"
"$program" completions bash >"$made/verbena.bash"
"$program" completions zsh >"$made/_verbena"
"$program" completions fish >"$made/verbena.fish"
# A program without the feature `man` has no manual pages to write.
"$program" man "$made/man" 2>/dev/null || [ -n "${PROGRAM:-}" ]
[ -z "$(ls "$made/man")" ] || gzip -9n "$made"/man/*.1
# What is linked in, without what only builds it.
cargo tree --locked --offline -p verbena-cli --features packages -e normal --prefix none --format '{p}: {l}' |
    grep -v '^verbena-' | sed 's/ (.*): /: /; s/ (\*)$//' | sort -u >"$made/crates.txt"

# archive NAME: packs a directory of $made with that name. The same content is the same archive.
archive() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime='2000-01-01 UTC' -C "$made" -czf "$release/$1.tar.gz" "$1"; }

# For every distribution with this C library or a later one. libelf and zlib are the distribution's own.
tree=verbena-$version-$machine-linux
mkdir -p "$made/$tree"/{bin,share/doc/verbena,share/man/man1,share/bash-completion/completions,share/zsh/site-functions,share/fish/vendor_completions.d}
install -m 755 "$program" "$made/$tree/bin/verbena"
cp -r LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs "$made/crates.txt" "$made/$tree/share/doc/verbena/"
cp "$made/verbena.bash" "$made/$tree/share/bash-completion/completions/verbena"
cp "$made/_verbena" "$made/$tree/share/zsh/site-functions/"
cp "$made/verbena.fish" "$made/$tree/share/fish/vendor_completions.d/"
find "$made/man" -name '*.gz' -exec cp {} "$made/$tree/share/man/man1/" \;
archive "$tree"

# For Debian. cargo-deb takes the program from where the profile `dist` leaves it.
if command -v cargo-deb >/dev/null; then
    if [ -n "${PROGRAM:-}" ]; then
        cp "$program" "$target/dist/verbena"
        [ -n "$(ls "$made/man")" ] || : | gzip -9n >"$made/man/verbena.1.gz"
    fi
    cargo deb --locked -p verbena-cli --no-build --strip --quiet
    [ -z "${PROGRAM:-}" ] || rm "$target/dist/verbena"
    cp "$target"/debian/verbena_*.deb "$release/"
else
    echo "no package for Debian: cargo-deb is missing (scripts/setup-debian.sh package)" >&2
    exit 1
fi

# The library for C. What pkg-config says is relative to its file, so the tree may lie anywhere.
build -p verbena-capi
tree=libverbena-$version-$machine-linux
mkdir -p "$made/$tree"/{include,lib/pkgconfig,share/doc/libverbena}
cp adapters/capi/include/verbena.h "$made/$tree/include/"
strip --strip-unneeded -o "$made/$tree/lib/libverbena.so" "$target/$folder/libverbena.so"
strip --strip-debug -o "$made/$tree/lib/libverbena.a" "$target/$folder/libverbena.a"
cp LICENSE-APACHE LICENSE-MIT "$made/$tree/share/doc/libverbena/"
cat >"$made/$tree/lib/pkgconfig/verbena.pc" <<END
prefix=\${pcfiledir}/../..
Name: verbena
Description: Locks and memory that the machines of a Verbena cluster share, and caches that are never stale
Version: $version
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -lverbena
Libs.private: -lpthread -ldl -lm -lgcc_s
END
archive "$tree"

# The package for Python: one for every version from 3.11 on. maturin looks which C library it needs at least, and says that in the name (manylinux).
environment=$target/packages-python
if [ ! -x "$environment/bin/maturin" ]; then
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check maturin==1.16.0
fi
PATH=$environment/bin:$PATH maturin build --quiet --locked --profile "$profile" --strip --compatibility pypi --manifest-path adapters/python/Cargo.toml \
    --target-dir "$target" --out "$release"

# The package for Node.
mkdir "$made/node"
cp -r adapters/node/{lib,README.md,package.json} LICENSE-APACHE LICENSE-MIT "$made/node/"
sed -i "s/\"version\": \".*\"/\"version\": \"$version\"/" "$made/node/package.json"
npm pack --silent --no-update-notifier --pack-destination "$release" "$made/node" >/dev/null

cp scripts/install.sh "$release/"
sed "s/@VERSION@/$version/" scripts/Containerfile >"$release/Containerfile"
needs=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
echo "the program needs ${needs/GLIBC_/glibc } or later, libelf.so.1 and libz.so.1" | tee "$release/NEEDS"
(cd "$release" && sha256sum -- * >SHA256SUMS)
ls -l "$release"
