#!/usr/bin/env bash
# Installs what building (setup-debian.sh build), testing (test), testing on Debian's own kernel (vm), making the package (package), the demonstration of whole sites (site), clients of the pool in other languages (clients) or comparing with others (compare) needs on Debian 12, and nothing that is there already.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin

what=${1:-test}
case "$what" in
build | test | vm | package | compare | site | clients) ;;
*)
    echo "usage: $0 build|test|vm|package|compare|site|clients" >&2
    exit 2
    ;;
esac

# Command that must be there, and the package that brings it.
# clang compiles for the kernel what the provider xdp has there; protoc the messages of etcd.
commands=(cc:gcc ld:binutils make:make clang:clang protoc:protobuf-compiler)
if [ "$what" = test ]; then
    # c++: libFuzzer, which the fuzz targets are linked with.
    commands+=(c++:g++ curl:curl ip:iproute2 ss:iproute2 iptables:iptables pkill:procps script:bsdutils git:git)
    commands+=(etcd:etcd-server etcdctl:etcd-client redis-server:redis-server setpriv:util-linux)
    # Loads the extension that has databases in segments.
    commands+=(sqlite3:sqlite3)
    # Apache with the module, and what builds it.
    commands+=(apache2:apache2-bin apxs:apache2-dev)
    # Makes certificates, and speaks TLS to the proxy and to the FTP server.
    commands+=(openssl:openssl)
    # PHP with the extension, and what builds it.
    commands+=(php:php8.2-cli phpize:php8.2-dev)
    # Databases behind the relay, and clients of theirs.
    commands+=(mariadbd:mariadb-server mariadb:mariadb-client psql:postgresql-client)
    # The package for Node, and what installs the frameworks that it is tested with.
    commands+=(node:nodejs npm:npm)
    # Clients of the FTP server, and what the cache bank and the mounts over it need.
    commands+=(wget:wget lftp:lftp ncftp:ncftp tnftp:tnftp rclone:rclone memcached:memcached sshfs:sshfs)
    # A network file system beside memory.apps.
    commands+=(glusterfsd:glusterfs-server glusterfs:glusterfs-client)
fi

# Tests have a machine of their own where they need another kernel than this one.
machine=
case "$what" in test | vm) machine=yes ;; esac

# The verbs library is bound by these two: its stand-in is compiled by the one, its header is read by the other.
bound=
case "$what" in test | package) bound=yes ;; esac
[ ! "$bound" ] || commands+=(cmake:cmake)

if [ "$what" = package ]; then
    # Says which packages the program's libraries are in; makes the Debian in which the package is tested.
    commands+=(dpkg-shlibdeps:dpkg-dev mmdebstrap:mmdebstrap curl:curl ip:iproute2 npm:npm)
fi

if [ "$machine" ]; then
    commands+=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static modprobe:kmod cpio:cpio xz:xz-utils ip:iproute2)
    # The modules of Debian's kernel are compiled by this one.
    commands+=(gcc-12:gcc-12 rdma:iproute2 ibv_devinfo:ibverbs-utils)
fi

if [ "$what" = compare ]; then
    commands+=(nginx:nginx-light varnishd:varnish wrk:wrk h2load:nghttp2-client curl:curl etcd:etcd-server redis-server:redis-server)
    # Peers of the relay and of transfers.
    commands+=(haproxy:haproxy pgbouncer:pgbouncer pgbench:postgresql-contrib lftp:lftp rclone:rclone)
    commands+=(globus-gridftp-server:globus-gridftp-server-progs globus-url-copy:globus-gass-copy-progs)
fi

if [ "$what" = site ]; then
    # Application servers, proxies and the database of scripts/demo-site.sh and scripts/site/arms.sh.
    commands+=(apache2:apache2-bin apxs:apache2-dev mariadbd:mariadb-server mariadb:mariadb-client php:php8.2-cli php-fpm8.2:php8.2-fpm phpize:php8.2-dev)
fi

if [ "$what" = clients ]; then
    # What scripts/test-pool-clients.sh installs and runs clients with; one of them pings servers that have failed. memcached is what their examples are compared with.
    commands+=(node:nodejs npm:npm go:golang-go ping:iputils-ping memcached:memcached ip:iproute2 unshare:util-linux)
fi

packages=()
for entry in "${commands[@]}"; do
    command -v "${entry%%:*}" >/dev/null || packages+=("${entry##*:}")
done
# python3-minimal has the command and not the whole standard library, which an application of the tests uses; Debian has what makes environments, for
# the tests of the package for Python, in a package of its own.
if [ "$what" = test ] && ! python3 -c 'import http.server, sqlite3' 2>/dev/null; then
    packages+=(python3)
fi
if [[ $what = test || $what = package ]] && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    packages+=(python3-venv)
fi
if [ "$what" = test ]; then
    compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || packages+=(postgresql)
    # What translators of GlusterFS are compiled with.
    [ -e /usr/include/glusterfs/xlator.h ] || packages+=(libglusterfs-dev)
    compgen -G '/usr/include/*/urcu.h' >/dev/null || packages+=(liburcu-dev)
    [ -e /usr/lib/openssh/sftp-server ] || packages+=(openssh-sftp-server)
    # Drivers for Debian's own Python, whatever else is called python3.
    [ -x /usr/bin/python3 ] || packages+=(python3)
    /usr/bin/python3 -c 'import pymysql' 2>/dev/null || packages+=(python3-pymysql)
    /usr/bin/python3 -c 'import psycopg2' 2>/dev/null || packages+=(python3-psycopg2)
    /usr/bin/python3 -c 'import psycopg' 2>/dev/null || packages+=(python3-psycopg)
    /usr/bin/python3 -c 'import asyncpg' 2>/dev/null || packages+=(python3-asyncpg)
    # A server of FTP and a client of memcached that are not ours.
    /usr/bin/python3 -c 'import pyftpdlib' 2>/dev/null || packages+=(python3-pyftpdlib)
    /usr/bin/python3 -c 'import pymemcache' 2>/dev/null || packages+=(python3-pymemcache)
fi
if [ "$what" = test ]; then
    for extension in mysqli:php8.2-mysql dom:php8.2-xml memcached:php8.2-memcached; do
        php -m 2>/dev/null | grep -qx "${extension%%:*}" || packages+=("${extension##*:}")
    done
fi
if [ "$what" = site ]; then
    for extension in mysqli:php8.2-mysql mbstring:php8.2-mbstring xml:php8.2-xml intl:php8.2-intl gd:php8.2-gd; do
        php -m 2>/dev/null | grep -qx "${extension%%:*}" || packages+=("${extension##*:}")
    done
    [ -e /var/lib/mediawiki/index.php ] || packages+=(mediawiki)
    [ -e /usr/share/wordpress/wp-load.php ] || packages+=(wordpress)
    [ -e /usr/share/wordpress/wp-content/themes/twentytwentyone ] || packages+=(wordpress-theme-twentytwentyone)
    [ -x /usr/bin/python3 ] || packages+=(python3)
    /usr/bin/python3 -c 'import pymysql' 2>/dev/null || packages+=(python3-pymysql)
fi
# One browser of several, without what a desktop needs, and a font for it.
if [ "$what" = test ] && ! command -v chromium-headless-shell >/dev/null && ! command -v chromium >/dev/null; then
    packages+=(chromium-headless-shell fonts-dejavu-core)
fi
if [ "$bound" ] && ! compgen -G '/usr/lib/*/libclang-[0-9]*.so*' >/dev/null; then
    packages+=(libclang1)
fi
# What the verbs library loads for each kind of adapter.
[ ! "$machine" ] || compgen -G '/usr/lib/*/libibverbs/librxe-*' >/dev/null || packages+=(ibverbs-providers)
# By which connections of iWARP are made.
[ ! "$machine" ] || compgen -G '/usr/lib/*/librdmacm.so.1' >/dev/null || packages+=(librdmacm1)
# A compiler without the C library's headers cannot link.
[ -e /usr/include/stdio.h ] || packages+=(libc6-dev)
# The loader of programs for the kernel is built from its source against these two; the headers are what such programs include.
[ -e /usr/include/libelf.h ] || packages+=(libelf-dev)
[ -e /usr/include/zlib.h ] || packages+=(zlib1g-dev)
[ -e /usr/include/bpf/bpf_helpers.h ] || packages+=(libbpf-dev)
command -v pkg-config >/dev/null || packages+=(pkg-config)
# The messages of etcd import some that come with protoc's library and not with protoc.
[ -e /usr/include/google/protobuf/descriptor.proto ] || packages+=(libprotobuf-dev)

if [ "${#packages[@]}" -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "verbena: these packages are missing and only root can install them: ${packages[*]}" >&2
        exit 1
    fi
    echo "installing: ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    # Whoever installs a server by this wants its program and not the service.
    RUNLEVEL=1 apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${packages[@]}"
fi

if [ "$what" = test ]; then
    for component in rustfmt:cargo-fmt clippy:cargo-clippy; do
        command -v "${component##*:}" >/dev/null || rustup component add "${component%%:*}"
    done
    # Looks at licences and sources of everything that is linked in.
    if ! command -v cargo-deny >/dev/null; then
        echo "installing: cargo-deny (built once, three to four minutes on two cores)"
        cargo install --quiet --locked cargo-deny --version 0.20.2
    fi
    # Runs the tests side by side. It waits for processes most of its time, so it is built without optimisation, in half the time.
    if ! command -v cargo-nextest >/dev/null; then
        echo "installing: cargo-nextest (built once, two to three minutes on two cores)"
        CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug cargo-nextest --version 0.9.151 \
            --no-default-features --features default-no-update
    fi
fi

if [ "$what" = package ] && ! command -v cargo-deb >/dev/null; then
    echo "installing: cargo-deb (built once, two to three minutes on two cores)"
    cargo install --quiet --locked cargo-deb --version 3.8.0
fi
