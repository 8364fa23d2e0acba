#!/usr/bin/env bash
# test-first-hit.sh RELEASE ROOT: from a machine that has nothing to the first hit, by two commands, and how long it took. ROOT is a fresh Debian; RELEASE a directory that
# scripts/package.sh has made. Also that nothing is installed that was damaged on its way.
set -euo pipefail
cd "$(dirname "$0")/.."

release=$(realpath "$1")
root=$(realpath "$2")
place=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$place"; rm -rf "$root/release"' EXIT
wrong() { echo "first hit: $*" >&2; exit 1; }
within() { unshare --net --mount --fork --pid --kill-child --mount-proc="$root/proc" chroot "$root" "$@"; }

# An application that the machine has already, and a client: perl and bash are in every Debian.
cat >"$root/application.pl" <<'END'
use IO::Socket::INET;
my $socket = IO::Socket::INET->new(LocalAddr => "127.0.0.1:8000", Listen => 64, ReuseAddr => 1) or die $!;
while (my $client = $socket->accept) {
    while (my $line = <$client>) { last if $line =~ /^\r?$/ }
    print $client "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    close $client;
}
END
cat >"$root/first-hit.sh" <<'END'
set -eu
ip link set lo up
for tool in cargo rustc curl wget python3 node verbena; do ! command -v $tool >/dev/null || { echo "$tool is here"; exit 1; }; done
perl /application.pl &
ask() {
    exec 3<>/dev/tcp/127.0.0.1/8080 || return 1
    printf 'GET /page HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n' >&3
    cat <&3
}
began=$(date +%s%N)
sh /release/install.sh >/tmp/installed
verbena proxy --origin http://127.0.0.1:8000 --listen 127.0.0.1:8080 >/tmp/proxy.log 2>&1 &
for try in {1..600}; do
    answer=$(ask 2>/dev/null || true)
    if [[ $answer == *"verbena; hit"*hello ]]; then
        echo "$((($(date +%s%N) - began) / 1000000)) ms from nothing to the first hit"
        exit
    fi
    sleep 0.1
done
cat /tmp/installed /tmp/proxy.log
echo "$answer"
exit 1
END
mkdir -p "$root/release"
cp "$release"/* "$root/release/"
told=$(within bash /first-hit.sh 2>&1) || wrong "$told"
rm -f "$root/first-hit.sh" "$root/application.pl" "$root/usr/local/bin/verbena"

# The same from a URL, and what it does with a release that is not whole.
cp -r "$release" "$place/release"
python3 -u -m http.server --bind 127.0.0.1 --directory "$place/release" 0 >"$place/log" 2>&1 &
server=$!
for try in {1..600}; do
    port=$(sed -n 's/.*port \([0-9]*\).*/\1/p' "$place/log" | head -n 1)
    [ -z "$port" ] || break
    sleep 0.1
done
install() { sh "$release/install.sh" --from "http://127.0.0.1:$port" --to "$place/to" "$@" 2>&1; }
install program >/dev/null || wrong "the program from a URL"
"$place/to/bin/verbena" --version >/dev/null || wrong "it does not start"
install lib >/dev/null || wrong "the library from a URL"
export PKG_CONFIG_PATH=$place/to/lib/pkgconfig
# shellcheck disable=SC2046
cc -o "$place/lock" adapters/capi/examples/lock.c $(pkg-config --cflags --libs verbena) || wrong "an example does not link by what pkg-config says"
LD_LIBRARY_PATH=$place/to/lib ldd "$place/lock" | grep -q "$place/to/lib/.*libverbena" || wrong "it is another library"
sum=$(sha256sum "$release/SHA256SUMS" | cut -d ' ' -f 1)
install --sums "$sum" program >/dev/null || wrong "the right sum is refused"
! install --sums "${sum//[0-7]/8}" program >/dev/null || wrong "a wrong sum of SHA256SUMS is taken"
rm -rf "$place/to"
for archive in "$place"/release/verbena-*.tar.gz; do printf x >>"$archive"; done
said=$(install program) && wrong "a damaged archive is installed"
[[ $said == *"another sum"* && ! -e $place/to ]] || wrong "of a damaged archive it says: $said"
said=$(sh "$release/install.sh" --from "$place" program 2>&1) && wrong "a directory without a release is taken"
[[ $said == *"has no SHA256SUMS"* ]] || wrong "of a directory without a release it says: $said"
echo "counted: $told; 8 checks of install.sh"
