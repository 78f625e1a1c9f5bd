#!/usr/bin/env bash
# Sets up central for the monitor, once: topics, templates, a channel, a list, routes, a subscription, and a token.
#
#   central/set_up.sh MAIL_HOST MAIL_PORT ADDRESS WEBHOOK_URL SECRET_FILE TOKEN_FILE
#
# SECRET_FILE holds the secret that the receiver of the webhooks shares (whsec_…); the relay's token is written to
# TOKEN_FILE. The mail server is used without TLS and login: change the channel for a real one.
set -euo pipefail
if [ $# -ne 6 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mail_host=$1 mail_port=$2 address=$3 webhook_url=$4 secret_file=$5 token_file=$6
here=$(dirname "$0")

topic() { # NAME SUBJECT SEVERITY INCIDENT IS_CLEARED
    fieldpost topics save "$1" --attribute service --attribute group --example "$here/$1.json"
    fieldpost templates save "$1" --subject "$2" --body-file "$here/$1.txt" \
        --severity "$3" --incident "$4" --is-cleared "$5"
}

# The recovery has the incident of the failure and clears it, so that a duty desk resolves its alarm.
topic SERVICE_DOWN "{{ payload.service }} is down" critical "uptime of {{ payload.service }}" false
topic SERVICE_RECOVERED "{{ payload.service }} is up again" info "uptime of {{ payload.service }}" true
topic SSL_EXPIRING "{{ payload.message }}" warning "certificate of {{ payload.service }}" false

fieldpost channels add uptime-mail --set "host=$mail_host" --set "port=$mail_port" --set tls=none \
    --set from_address=uptime@example.org
fieldpost lists add web-team --target "$address" --channel uptime-mail

# The team of the group "web" gets mails. A service that flaps causes one mail in ten minutes.
fieldpost routes add web-down --filter "topic=SERVICE_DOWN,group=web" --list web-team \
    --cooldown-s 600 --cooldown-by service
fieldpost routes add web-other --filter "topic=SERVICE_RECOVERED,group=web" --filter "topic=SSL_EXPIRING,group=web" \
    --list web-team

# The status page gets every event of every group by webhook.
fieldpost subscriptions add status-page --owner web --url "$webhook_url" --secret-file "secret=$secret_file" \
    --filter topic=SERVICE_DOWN --filter topic=SERVICE_RECOVERED --filter topic=SSL_EXPIRING

fieldpost tokens add uptime --role publisher --output "$token_file"
