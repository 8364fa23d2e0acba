#!/bin/sh
# Installs one part of a release of Verbena, after its sum was checked.
#
#   install.sh [--from DIRECTORY|URL] [--to PREFIX] [--sums SHA256] [program|deb|lib|wheel|npm]
#
# program   the command, its manual and completions (if nothing is said)     PREFIX: /usr/local for root, else ~/.local
# deb       the package for Debian 12 and later, with a service
# lib       the library for C, with pkg-config                                PREFIX as above
# wheel     the package for Python, by `python3 -m pip` of the environment
# npm       the package for Node, into the project in the working directory
#
# Without --from it takes the release that it lies in. SHA256SUMS lies beside what it lists, so it shows what was damaged on its way, and not what was exchanged on purpose. --sums is the sum of
# SHA256SUMS itself, from where you trust it.
set -eu

wrong() {
    echo "install.sh: $*" >&2
    exit 1
}
usage() {
    sed -n '4p' "$0" | cut -c 5- >&2
    exit 2
}

from=$(dirname "$0")
to=
sums=
what=program
while [ $# -gt 0 ]; do
    case $1 in
    --from | --to | --sums)
        [ $# -ge 2 ] || usage
        case $1 in --from) from=$2 ;; --to) to=$2 ;; --sums) sums=$2 ;; esac
        shift
        ;;
    program | deb | lib | wheel | npm) what=$1 ;;
    *) usage ;;
    esac
    shift
done
if [ -z "$to" ]; then
    if [ "$(id -u)" = 0 ]; then to=/usr/local; else to=$HOME/.local; fi
fi
[ "$(uname -s)" = Linux ] || wrong "it runs on Linux, and this is $(uname -s)"
machine=$(uname -m)

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# get NAME: from a directory, or by curl or wget.
get() {
    case $from in
    http://* | https://*)
        if command -v curl >/dev/null; then
            curl --fail --silent --show-error --location --output "$place/$1" "$from/$1" || wrong "$from/$1 cannot be fetched"
        elif command -v wget >/dev/null; then
            wget --quiet --output-document="$place/$1" "$from/$1" || wrong "$from/$1 cannot be fetched"
        else
            wrong "neither curl nor wget is here: copy the release to this machine, and say --from DIRECTORY"
        fi
        ;;
    *) cp "$from/$1" "$place/$1" || wrong "$from has no $1: --from names the directory or the URL of a release" ;;
    esac
}

get SHA256SUMS
if [ -n "$sums" ]; then
    echo "$sums  $place/SHA256SUMS" | sha256sum --check --status || wrong "$from/SHA256SUMS has not the sum $sums: nothing was installed"
fi

case $what in
program) pattern="verbena-[0-9.]*-$machine-linux\\.tar\\.gz" ;;
lib) pattern="libverbena-[0-9.]*-$machine-linux\\.tar\\.gz" ;;
deb) pattern="verbena_[0-9.-]*_[a-z0-9]*\\.deb" ;;
wheel) pattern="verbena-[0-9.]*-[a-z0-9_.-]*$machine\\.whl" ;;
npm) pattern="verbena-[0-9.]*\\.tgz" ;;
esac
name=$(sed -n "s/^[0-9a-f]\\{64\\}  \\($pattern\\)\$/\\1/p" "$place/SHA256SUMS")
[ -n "$name" ] || wrong "the release in $from has no $what for $machine"
[ "$(echo "$name" | wc -l)" = 1 ] || wrong "the release in $from has several: $name"
get "$name"
(cd "$place" && grep "  $name\$" SHA256SUMS | sha256sum --check --status) || wrong "$name has another sum than SHA256SUMS says: nothing was installed"

case $what in
program | lib)
    mkdir -p "$to" 2>/dev/null || wrong "$to cannot be made: --to PREFIX is another place"
    [ -w "$to" ] || wrong "$to cannot be written by $(id -un): --to PREFIX is another place"
    tar -xzf "$place/$name" -C "$to" --strip-components=1 --no-same-owner --no-overwrite-dir
    ;;
deb) apt-get install -y "$place/$name" ;;
wheel) python3 -m pip install --disable-pip-version-check "$place/$name" ;;
npm)
    # npm notes where a package came from, so it stays.
    mkdir -p vendor
    cp "$place/$name" "vendor/$name"
    npm install --no-audit --no-fund "./vendor/$name"
    ;;
esac

if [ "$what" = program ]; then
    missing=$("$to/bin/verbena" --version 2>&1 >/dev/null) || wrong "$to/bin/verbena does not start: $missing
libelf.so.1 is in the package libelf1 (Debian, Ubuntu) or elfutils-libelf (Fedora, RHEL); GLIBC_... not found: the distribution is too old, see NEEDS"
    echo "installed: $("$to/bin/verbena" --version) as $to/bin/verbena"
    case :$PATH: in *":$to/bin:"*) ;; *) echo "add $to/bin to PATH" ;; esac
    echo "next: verbena proxy --origin http://127.0.0.1:8000 --listen 127.0.0.1:8080"
else
    echo "installed: $name"
fi
