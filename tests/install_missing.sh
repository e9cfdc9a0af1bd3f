#!/bin/sh
# Install what the tests need and this machine lacks: servers, a browser and Mono from Debian's packages, and a client of Jolokia,
# generators of clients and Newtonsoft.Json from npm and PyPI, pinned with hashes, into build/clients. `make test` runs this
# script; pytest itself installs nothing.
#
# usage: tests/install_missing.sh PYTHON [typescript]
# PYTHON: the interpreter of the environment that runs the tests. typescript: install only what builds that client.
set -eu
python=$1
only=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../build/clients

# Debian keeps PostgreSQL's programs out of PATH, in a folder for each version.
has() { PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/"$1" >/dev/null 2>&1; }

missing=
need() { has "$1" || missing="$missing $2"; }
need node nodejs
need npm npm
if [ "$only" != typescript ]; then
  need postgres postgresql
  need psql postgresql-client
  need memcached memcached
  need redis-server redis-server
  need redis-cli redis-tools
  need prometheus prometheus
  need promtool prometheus
  need chromium chromium
  need docker-compose docker-compose
  need nginx nginx; need caddy caddy; need pgbouncer pgbouncer
  need systemd-analyze systemd
  need mono mono-runtime
  need mcs mono-mcs
  [ -e /usr/lib/mono/4.5/System.Net.Http.dll ] || missing="$missing libmono-system-net-http4.0-cil"
  # Newtonsoft.Json needs it.
  [ -e /usr/lib/mono/4.5/System.Runtime.Serialization.dll ] || missing="$missing libmono-system-runtime-serialization4.0-cil"
  need curl curl
fi

if [ -n "$missing" ]; then
  as_root=
  [ "$(id -u)" -eq 0 ] || as_root="sudo -n"
  echo "These Debian packages are missing, and are installed now:$missing"
  failed() {
    echo "They could not be installed from here. As root: apt-get install$missing" >&2
    exit 1
  }
  $as_root apt-get update -q >/dev/null || failed
  # Releases differ. One package that is not there must not keep all tests from running.
  offered=
  for package in $missing; do
    if [ -n "$(apt-cache show "$package" 2>/dev/null)" ]; then
      offered="$offered $package"
    else
      echo "This system offers no package $package. Tests that need it will fail, and say so." >&2
    fi
  done
  # With RUNLEVEL=1 the packages do not start services of their own; the tests start theirs.
  [ -z "$offered" ] || $as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -q --no-install-recommends $offered >/dev/null || failed
fi

install_npm() {
  cmp -s "$here/clients/package-lock.json" "$build/npm/.installed" && return
  echo "Installing jolokia.js, axe-core, openapi-typescript, typescript and Newtonsoft.Json by npm into build/clients/npm."
  mkdir -p "$build/npm"
  cp "$here/clients/package.json" "$here/clients/package-lock.json" "$build/npm/"
  (cd "$build/npm" && npm ci --ignore-scripts --no-audit --no-fund --silent)
  cp "$here/clients/package-lock.json" "$build/npm/.installed"
}

install_generator() {
  cmp -s "$here/clients/openapi_python_client.txt" "$build/generator/.installed" && return
  echo "Installing openapi-python-client by pip into build/clients/generator."
  rm -rf "$build/generator"
  "$python" -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes \
    --target "$build/generator" -r "$here/clients/openapi_python_client.txt"
  cp "$here/clients/openapi_python_client.txt" "$build/generator/.installed"
}

install_npm &
npm=$!
[ "$only" = typescript ] || install_generator
wait "$npm"
