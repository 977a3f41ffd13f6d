#!/usr/bin/env bash
# Becomes a machine: its own network, processes, home and temporary files. hosts.py runs this in new namespaces.
set -euo pipefail
name=$1 address=$2 folder=$3 venv=$4
shift 4 # what is left has to be seen, even if it lies below /tmp

hostname "$name"
ip link set lo up
echo waiting
read -r _ # until the cable is plugged in
ip address add "$address/24" dev eth0
ip link set eth0 up

mount --bind "$folder/passwd" /etc/passwd # its home is $folder/home, on every machine
mount --bind "$folder/$name/home" "$folder/home"
mkdir -p "$folder/home/oclgrid/.venv"
mount --bind -o ro "$venv" "$folder/home/oclgrid/.venv" # installed once for all
mount --bind "$folder/$name/postgresql" /var/lib/postgresql
mount -t tmpfs none /dev/shm
mount -t tmpfs -o mode=755 none /run
mkdir /run/sshd
install -d -o postgres /run/postgresql "$folder/$name/postgresql"

mount -t tmpfs -o mode=1777 none "$folder/$name/tmp"
for path in "$folder/home" "$@"; do
  case $path in
    /tmp/*) mkdir -p "$folder/$name/$path" && mount --rbind "$path" "$folder/$name/$path" ;;
  esac
done
mount --rbind "$folder/$name/tmp" /tmp

echo ready
exec < /dev/null
cd /
if [ -e "$folder/$name/sshd_config" ]; then
  exec /usr/sbin/sshd -D -f "$folder/$name/sshd_config" -E "$folder/$name/sshd.log"
fi
exec sleep infinity
