#!/bin/sh
# Make a fresh machine in a folder, from a release of Debian, and do there what a newcomer does with a clone of the current
# commit: `make demo`, `make check` and `make test`. The machine is a minimal installation with the packages that
# CONTRIBUTING.md asks for. It is removed however this script ends.
#
# usage: tests/fresh_machine.sh SUITE [TESTS]
# SUITE: a release, such as bookworm or trixie. TESTS: run only these tests, such as tests/config.
# FRESH_USER=NAME: work as a user of this name who has sudo, instead of root.
# Needs root, and 4 GB below TMPDIR, or below /var/tmp. Installs debootstrap if it is missing.
set -eu
packages=python3,python3-venv,make,git,ca-certificates

if [ "${1:-}" != --inside ]; then
  suite=${1:?name a release of Debian, such as trixie}
  cd "$(dirname "$0")/.."
  if ! command -v debootstrap >/dev/null; then
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends debootstrap; } >/dev/null
  fi
  folder=$(mktemp -d "${TMPDIR:-/var/tmp}/rankcurve-$suite-XXXXXX")
  inside=
  end() {
    [ -z "$inside" ] || { kill -KILL "$inside" && wait "$inside" || true; } 2>/dev/null
    rm -rf --one-file-system "$folder" 2>/dev/null || { sleep 1; rm -rf --one-file-system "$folder"; }
  }
  trap end EXIT
  trap 'exit 1' HUP INT TERM
  # In namespaces of their own, all mounts and processes of the machine end with the first process.
  unshare --mount --pid --fork --kill-child sh tests/fresh_machine.sh --inside "$folder/machine" "$suite" "${2:-}" &
  inside=$!
  wait "$inside" || exit
  inside=
  exit
fi

machine=$2 suite=$3 tests=$4 user=${FRESH_USER:-root} home=/root
[ "$user" = root ] || packages=$packages,sudo home=/home/$user
# The mirror of this machine, if it has one of this distribution; otherwise debootstrap takes that of the release.
mirror=$(. /etc/os-release && cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
  sed -nE "s/^(URIs:|deb)( \[.*\])? (https?:[^ ]*\/$ID)\/?( .*)?$/\3/p" | head -n 1)
echo "Making a minimal $suite."
# shellcheck disable=SC2086
debootstrap --variant=minbase --include="$packages" "$suite" "$machine" $mirror >"$machine.log" ||
  { tail "$machine.log" >&2; exit 1; }

# The machine reaches the network as this one does: its names, proxies, certificates, mirrors and limits.
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt \
  $(grep -ls Acquire: /etc/apt/apt.conf /etc/apt/apt.conf.d/*); do
  [ ! -e "$file" ] || cp -L "$file" "$machine$file"
done
names='[a-z]+_proxy|[A-Z]+_PROXY|PIP_(CERT|PROXY|INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|DEFAULT_TIMEOUT|RETRIES)|npm_config_[a-z_]+|NPM_CONFIG_[A-Z_]+|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|[A-Z_]+_CA_BUNDLE'
reach=$(env | grep -E "^($names)=[^ ]*$" || true)

git clone --quiet --no-local . "$machine$home/rankcurve"
mount -t proc proc "$machine/proc"
mount --rbind /sys "$machine/sys"
mount --rbind /dev "$machine/dev"
mount -t tmpfs -o mode=1777 shm "$machine/dev/shm"
if [ "$user" != root ]; then
  chroot "$machine" useradd --shell /bin/sh "$user"
  chroot "$machine" chown -R "$user:$user" "$home"
  echo "$user ALL=(ALL) NOPASSWD: ALL" >"$machine/etc/sudoers.d/$user"
fi

run() {
  # shellcheck disable=SC2086
  chroot --userspec="$user" "$machine" env -i HOME="$home" USER="$user" LANG=C.UTF-8 TERM="${TERM:-dumb}" $reach \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    sh -c 'cd ~/rankcurve && exec "$@"' sh "$@"
}
# Another service may use the usual port of this machine.
port=$(run python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
run make demo ARGS=--once RANKCURVE_PORT="$port"
run make check
run make test ARGS="$tests"
