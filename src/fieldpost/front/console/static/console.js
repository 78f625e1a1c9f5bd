// Small comforts. Every page works without this file.
"use strict";

// A page that brings itself up to date must not do so under the hand that points at it.
function isInUse(element) {
  const selection = document.getSelection();
  return (
    document.hidden ||
    element.matches(":hover, :focus-within") && element.querySelector("tbody:hover, form:focus-within, a:focus") !== null ||
    (selection !== null && !selection.isCollapsed && element.contains(selection.anchorNode))
  );
}

function tellLocalTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    time.title = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) + " your time";
  }
}

function setOffline(isOffline) {
  document.getElementById("offline").hidden = !isOffline;
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.id === "live" && isInUse(event.target)) event.preventDefault();
});
document.addEventListener("htmx:afterSwap", (event) => {
  tellLocalTimes(document);
  setOffline(false);
});
document.addEventListener("htmx:sendError", () => setOffline(true));
document.addEventListener("htmx:responseError", () => setOffline(true));

document.addEventListener("submit", (event) => {
  const button = event.submitter;
  const question = button && button.dataset.confirm;
  if (question && !window.confirm(question)) {
    event.preventDefault();
    return;
  }
  // One press is enough; the button comes back if the browser shows this page again.
  if (event.target.method === "post" && button) setTimeout(() => (button.disabled = true));
});
window.addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("button:disabled")) button.disabled = false;
});

tellLocalTimes(document);
