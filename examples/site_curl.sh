#!/bin/sh
# A program in any language at a site: here the shell, with nothing but curl. The site's agent has to run.
#
#   examples/site_curl.sh SITE_FOLDER
#
# The agent listens on a Unix socket in the site's folder, which only its own user can open, so no token is needed. With
# `[local] port = 8026` in site.toml the same is served at http://127.0.0.1:8026 for whoever shows the token:
#   curl -H "Authorization: Bearer $(cat "$folder/local.token")" http://127.0.0.1:8026/v1/site
set -eu
folder=$1

site() {
    path=$1
    shift
    curl --silent --show-error --fail-with-body --max-time 60 --unix-socket "$folder/agent.sock" \
        -H 'Content-Type: application/json' "$@" "http://localhost/v1$path"
    echo
}

# One notification. The key makes it safe to run this line again: the same key and content are the same notification.
sent=$(site /notifications -d '{"list_name": "ops", "subject": "Pump 3", "body": "Pressure low", "key": "pump-3 08:14"}')
echo "$sent"

# Where it stands: `forwarding` while it waits here for the link, then what central says.
id=$(echo "$sent" | sed 's/.*"notification_id":"\([^"]*\)".*/\1/')
site "/notifications/$id"

# One call of an external system that site.toml defines. It is on disk before it is tried; if the system cannot be
# reached now, the agent tries again. A call that is refused for good makes curl fail, and prints why.
site /external/erp/calls -d '{"method": "POST", "path": "/orders", "json": {"part": "seal", "count": 2}}' || true

# What happened here lately.
site '/events?limit=3'
