#!/usr/bin/env bash
# Prepares the head as docs/cluster.md asks: PostgreSQL with two databases of the user, let in over a local socket.
set -euo pipefail
cd /var/lib/postgresql
programs=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
as() { runuser -u postgres -- "$@" > /dev/null; }
as "$programs/initdb" --pgdata=data --auth-local=peer --auth-host=scram-sha-256 --encoding=UTF8 --no-locale --no-sync
as "$programs/pg_ctl" start --pgdata=data --log=log --wait --options='-c fsync=off'
as createuser "$(id -un)"
for base in oclgrid optuna; do as createdb -O "$(id -un)" "$base"; done
