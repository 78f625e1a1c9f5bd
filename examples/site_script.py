"""A script at a site: it notifies a list and prints the notification's id. Try it beside a running `fieldpost demo`.

The notification is on this machine's disk when `send` returns. No network and no agent is needed for that; the site's
agent forwards it as soon as it can.
"""

from fieldpost import Site

site = Site.open("fieldpost-demo/plant-north")
print(site.notify.to("ops").send("Pump 3", "Pressure low"))
