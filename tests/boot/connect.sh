#!/bin/bash
# Connects to the daemon without pause, on both of its sockets, while it restarts twice. Prints
# how many connections were served and what the others met.
set -u
api=http://127.0.0.1:8642/v1/models
work=$(mktemp -d)

clients() {
    local name=$1
    shift
    until [ -e "$work/done" ]; do
        if "$@" >"$work/$name.out" 2>&1; then
            echo ok
        else
            echo "$name: $(tr '\n' ' ' <"$work/$name.out")"
        fi
    done >"$work/$name.log"
}
# What it says of the workers is another matter: they come and go with the daemon.
status() { monoctl --json status | grep -q '"workers"'; }
clients admin status &
clients api curl -sS --fail --max-time 30 -H "Authorization: Bearer $1" "$api" &

before=$(systemctl show -P InvocationID monod.service)
for _ in 1 2; do
    systemctl restart monod.service || echo "restart failed"
done
touch "$work/done"
wait
[ "$before" != "$(systemctl show -P InvocationID monod.service)" ] || echo "the daemon did not restart"
for name in admin api; do
    echo "$name served $(grep -c '^ok$' "$work/$name.log")"
done
grep -hv '^ok$' "$work"/*.log
exit 0
