#!/usr/bin/env bash
# Unpacks vsftpd, proftpd and pure-ftpd of Debian, whose packages exclude each other, into a directory that no system service sees, and prints it.
#
#   ftp-servers.sh DIRECTORY
set -euo pipefail
mkdir -p "$1"
directory=$(realpath "$1")
if [ ! -x "$directory/usr/sbin/vsftpd" ] || [ ! -x "$directory/usr/sbin/proftpd" ] || [ ! -x "$directory/usr/sbin/pure-ftpd" ]; then
    packages=$(mktemp -d)
    trap 'rm -rf "$packages"' EXIT
    cd "$packages"
    apt-get download vsftpd proftpd-core pure-ftpd pure-ftpd-common libhiredis0.14 libmemcached11 libmemcachedutil2 >&2
    for package in *.deb; do
        dpkg -x "$package" "$directory"
    done
fi
echo "$directory"
