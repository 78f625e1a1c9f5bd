"""The schemas of Apprise URLs that speak HTTP, by the library `requests`, and nothing else; with their modules.

Left out are those that use other protocols or this machine: mail, syslog, MQTT, AMQP, IRC, XMPP, D-Bus, desktop
notifications, USB lights. A child process loads only the module that it needs. A test compares the list with the
installed version.
"""

_MODULES = """
africas_talking=atalk apprise_api=apprise,apprises bark=bark,barks betterstack bluesky=bluesky,bsky brevo bulksms
bulkvs burstsms=burstsms,kudosity chanify clickatell clicksend cliq=cliq,zcliq,zohocliq cm custom_form=form,forms
custom_json=json,jsons custom_xml=xml,xmls d7networks=d7sms dapnet dingtalk discord dot eight00com emby=emby,embys
enigma2=enigma2,enigma2s evolution=evolution,evolutions exotel fcm feishu firehydrant flock
flowtriq=flowtriq,flowtriqs fluxer=fluxer,fluxers fortysixelks=46elks,elks freemobile github
goalert=goalert,goalerts google_chat=gchat gorush=gorush,gorushs gotify=gotify,gotifys groundmail groupme gupshup
home_assistant=hassio,hassios httpsms humhub=humhub,humhubs ifttt ilert incidentio infobip jira join
kakaotalk=kakao,kakaotalk kaleyra=kaleyra,klr kavenegar kodi=kodi,kodis,xbmc,xbmcs kook kumulos
lametric=lametric,lametrics lark lauther lfgalarm=lfg line mailersend mailgun mastodon=mastodon,mastodons,toot,toots
matrix.base=matrix,matrixs mattermost=mmost,mmosts messagebird=msgbird misskey=misskey,misskeys
mobilemessage=mobilemessage,mobilemsg msg91 nextcloud=ncloud,nclouds nextcloudtalk=nctalk,nctalks nostr.base=nostr
notica=notica,noticas notifiarr notifico=notifico,notificos notifyre ntfy=ntfy,ntfys octopush office365=azure,o365
one_signal=onesignal onebot=onebot,onebots opsgenie pagerduty pagertree parseplatform=parsep,parseps
pinglet=pinglet,pinglets pingram plivo postmark prowl pushbullet=pbul pushdeer=pushdeer,pushdeers pushed
pushjet=pjet,pjets pushme pushover=pover pushplus=pushplus,wecom pushsafer=psafer,psafers pushward pushy qq reddit
resend revolt ringcentral=ringc rocketchat=rocket,rockets ryver sendgrid sendpulse serverchan=schan serwersms ses
seven sfr signal_api=signal,signals signalgrid signl4 simplepush=simplepush,spush sinch slack smsc
smseagle=smseagle,smseagles smsmanager=smsmanager,smsmgr smstunnel smtp2go sns sogs=session,sessions,sogs sparkpost
spike splunk=splunk,victorops spugpush squadcast stackfield streamlabs=strmlabs synology=synology,synologys
techuluspush=push telegram=tgram telesign telnyx threema trigv=trigv,trigvs twilio twist twitter=tweet,twitter,x
vapid viber voipms vonage=nexmo,vonage webexteams=webex,wxteams wechat wecombot whapi whatsapp
workflows=workflow,workflows wpush wxpusher xmatters youlmk zalo zoom zulip
"""
"""Modules of `apprise.plugins`, with their schemas unless the only one has the name of the module."""


def _by_schema() -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in _MODULES.split():
        module, _, schemas = entry.partition("=")
        found |= dict.fromkeys((schemas or module).split(","), module)
    return found


HTTP_SCHEMAS = _by_schema()
"""The module of each schema."""
