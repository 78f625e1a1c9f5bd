#!/bin/sh
# Use a site's local API from any language: here with curl. The site's agent must be running.
#
#   examples/site_curl.sh SITE_FOLDER
#
# The agent listens on a Unix socket in the site's folder, which only its own user can open, so it needs no token. With
# `[local] port = 8026` in site.toml, the same API is at http://127.0.0.1:8026 and needs the token:
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

# Send a notification. The key makes it safe to repeat: the same key and content are the same notification.
sent=$(site /notifications -d '{"list_name": "ops", "subject": "Pump 3", "body": "Pressure low", "key": "pump-3 08:14"}')
echo "$sent"

# Query its status: `forwarding` while it is in the buffer, then the status at central.
id=$(echo "$sent" | sed 's/.*"notification_id":"\([^"]*\)".*/\1/')
site "/notifications/$id"

# Call an external system defined in site.toml. The call is on disk before the first attempt; if the system is
# unreachable, the agent retries it. A permanent rejection makes curl fail and print the reason.
site /external/erp/calls -d '{"method": "POST", "path": "/orders", "json": {"part": "seal", "count": 2}}' || true

# Read the latest entries of the event log.
site '/events?limit=3'
