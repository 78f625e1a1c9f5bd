"""Send a notification to a list and print its id. Try it while `fieldpost demo` runs.

The notification is on this machine's disk when `send` returns, without the network or the agent; the agent forwards it
as soon as it can.
"""

from fieldpost import Site

site = Site.open("fieldpost-demo/plant-north")
print(site.notify.to("ops").send("Pump 3", "Pressure low"))
