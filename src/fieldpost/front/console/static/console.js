// Progressive enhancement: local times, live updates, dialogs, keyboard shortcuts. Every page works without this file.
"use strict";

// --- Local times, with UTC on hover --------------------------------------------------------------------------------

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

function showLocalTimes(root) {
  const today = new Date();
  for (const time of root.querySelectorAll("time[datetime]:not([data-local])")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
    const isToday = moment.toDateString() === today.toDateString();
    const day = `${moment.getDate()} ${moment.toLocaleDateString("en", { month: "short" })}`;
    const year = moment.getFullYear() === today.getFullYear() ? "" : ` ${moment.getFullYear()}`;
    if (!isToday || time.dataset.form) delete clock.second;
    time.title = `${time.dateTime.replace("T", " ").replace(/\.\d+Z$/, "").replace(/Z$/, "")} UTC`;
    // The axis of a chart has room for the day or the time, not both.
    const date = isToday || time.dataset.form === "minute" ? "" : `${day}${year} `;
    time.textContent = time.dataset.form === "day" ? day : date + moment.toLocaleTimeString("en-GB", clock);
    time.dataset.local = "";
  }
  const hint = document.getElementById("zone");
  if (hint) hint.textContent = zone === "UTC" ? "times in UTC" : `times in ${zone}; hover over a time for UTC`;
  // Forms with times submit the browser's time zone; without scripts times are UTC.
  for (const field of root.querySelectorAll("input[type=hidden][name=zone]")) field.value = zone;
  for (const label of root.querySelectorAll("[data-zone]")) label.textContent = "";
  for (const field of root.querySelectorAll("input[data-moment]")) {
    const moment = new Date(field.dataset.moment);
    const local = new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString();
    field.value = local.slice(0, moment.getSeconds() === 0 ? 16 : 19);
    delete field.dataset.moment;
  }
}

// --- Live updates: the event stream reports a change, the page reloads itself -----------------------------------------

const REST_MS = 1500; // minimum interval between reloads
let stream = null;
let rest = null;
let isWaiting = false;

const liveRegion = () => document.querySelector("#live[data-topics]");

function refresh() {
  if (rest !== null) {
    isWaiting = true;
    return;
  }
  rest = setTimeout(() => {
    rest = null;
    if (isWaiting) refresh();
  }, REST_MS);
  isWaiting = false;
  const live = liveRegion();
  if (live && !document.hidden) htmx.trigger(live, "changed");
}

// Browsers limit connections per server, so hidden tabs close their stream.
function listen() {
  const live = liveRegion();
  if (document.hidden || !live) {
    if (stream) stream.close();
    stream = null;
    return;
  }
  if (stream) return;
  // From the data on this page: a change between its rendering and now is reported at once.
  stream = new EventSource(`/live?${live.dataset.since}`);
  for (const topic of live.dataset.topics.split(" ")) stream.addEventListener(topic, refresh);
  stream.addEventListener("error", () => {
    // The browser reconnects unless the server refused; then the page polls every 15 s.
    if (stream && stream.readyState === EventSource.CLOSED) stream = null;
  });
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && liveRegion()) refresh();
  listen();
});

// A list must not move under the pointer: rows change in place, and new ones wait for a click or until the pointer leaves.
function isInUse(live) {
  const selection = document.getSelection();
  return (
    live.querySelector("tbody:hover, tbody :focus, input[data-select]:checked") !== null ||
    (selection !== null && !selection.isCollapsed && live.contains(selection.anchorNode)) ||
    live.getBoundingClientRect().top < -40
  );
}

let isHolding = false;
let heldBack = 0;
const isRow = (node) => node.nodeType === 1 && node.hasAttribute("data-row");

if (window.Idiomorph) {
  const callbacks = Idiomorph.defaults.callbacks;
  callbacks.beforeNodeAdded = (node) => {
    if (!isHolding || !isRow(node)) return true;
    heldBack += 1;
    return false;
  };
  callbacks.beforeNodeRemoved = (node) => {
    if (node.nodeType === 1 && node.id === "held-back") return false;
    if (!isHolding || !isRow(node)) return true;
    node.classList.add("passed");
    return false;
  };
  // Keep the user's state: local times, open details, selected rows with the versions seen.
  callbacks.beforeNodeMorphed = (old, fresh) => {
    if (old.nodeType !== 1) return true;
    if (old.localName === "time") return old.dateTime !== fresh.dateTime;
    return !(old.hasAttribute("data-kept") && fresh.hasAttribute("data-kept"));
  };
  callbacks.beforeAttributeUpdated = (name, node) =>
    !(name === "open" && node.localName === "details") &&
    !(node.localName === "svg" && name === "tabindex") &&
    !(name === "class" && node.matches?.(".slice")) &&
    !(node.matches?.("input[data-select]") && (name === "checked" || node.checked));
}

function showHeldBack(live) {
  document.getElementById("held-back")?.remove();
  if (heldBack === 0) return;
  const button = document.createElement("button");
  button.id = "held-back";
  button.type = "button";
  button.textContent = heldBack === 1 ? "1 new: show" : `${heldBack} new: show`;
  button.addEventListener("click", () => {
    button.remove();
    isShowing = true;
    htmx.trigger(live, "changed");
    window.scrollTo({ top: 0 });
  });
  live.prepend(button);
}
let isShowing = false;

document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.id !== "live") return;
  isHolding = !isShowing && isInUse(event.detail.target);
  isShowing = false;
  heldBack = 0;
});
document.addEventListener("htmx:afterSwap", (event) => {
  setOffline(false);
  showLocalTimes(document);
  prepareCharts();
  showFitting();
  if (event.detail.target.id !== "live") return;
  const live = document.getElementById("live");
  if (live) showHeldBack(live);
  showSelection();
  isHolding = false;
  listen();
});

function setOffline(isOffline) {
  document.getElementById("offline").hidden = !isOffline;
}
document.addEventListener("htmx:sendError", () => setOffline(true));
document.addEventListener("htmx:responseError", () => setOffline(true));

// --- Forms ---------------------------------------------------------------------------------------------------------

// A link with data-dialog opens a confirmation page as a dialog; without scripts, as a page.
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-dialog], a[data-close], [data-copy]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const dialog = document.getElementById("dialog");
  if (link.dataset.copy !== undefined) {
    const copied = link.dataset.copy;
    await navigator.clipboard.writeText(copied.startsWith("/") ? new URL(copied, location.href).href : copied);
    const text = link.textContent;
    link.textContent = "Copied";
    setTimeout(() => (link.textContent = text), 1500);
  } else if (link.dataset.close !== undefined && link.closest("dialog")) {
    event.preventDefault();
    dialog.close();
  } else if (link.dataset.dialog !== undefined) {
    event.preventDefault();
    openDialog(link.href);
  }
});

async function openDialog(address) {
  const dialog = document.getElementById("dialog");
  try {
    const response = await fetch(address, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const content = page.getElementById("confirm");
    if (!content) throw new Error("no confirmation on this page");
    dialog.replaceChildren(document.importNode(content, true));
    showLocalTimes(dialog);
    dialog.showModal();
    const field = dialog.querySelector("input:not([type=hidden], [type=radio]), textarea, select");
    (field || dialog.querySelector("button, a"))?.focus();
  } catch {
    window.location.href = address;
  }
}

document.addEventListener("submit", (event) => {
  const button = event.submitter;
  const question = button && button.dataset.confirm;
  if (question && !window.confirm(question)) {
    event.preventDefault();
    return;
  }
  // A form with data-dialog opens its target as a dialog, with the selected rows.
  if (event.target.dataset.dialog !== undefined) {
    event.preventDefault();
    openDialog(`${event.target.action}?${new URLSearchParams(new FormData(event.target, button))}`);
    return;
  }
  // Prevent double submission; the button is enabled again when the browser returns to this page.
  if (event.target.method === "post" && button) setTimeout(() => (button.disabled = true));
  // Leave empty fields out of the URL.
  if (event.target.method === "get") {
    for (const field of event.target.elements) if (field.name && field.value === "") field.disabled = true;
    const times = ["from", "to"].map((name) => event.target.elements[name]).filter((field) => field?.value);
    if (event.target.elements.zone && times.length === 0) event.target.elements.zone.disabled = true;
  }
});
window.addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("button:disabled, .filters :disabled")) field.disabled = false;
});

// Row selection: boxes are input[data-select], the one in the header input[data-select-all]; [data-selected] shows the
// count.
function showSelection() {
  const boxes = [...document.querySelectorAll("input[data-select]")];
  const count = boxes.filter((box) => box.checked).length;
  for (const label of document.querySelectorAll("[data-selected]")) {
    label.hidden = count === 0;
    for (const number of label.querySelectorAll("[data-selected-count]")) number.textContent = count;
  }
  for (const all of document.querySelectorAll("input[data-select-all]")) {
    all.checked = count > 0 && count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
  }
}
document.addEventListener("change", (event) => {
  if (event.target.matches("input[data-select-all]")) {
    for (const box of document.querySelectorAll("input[data-select]")) box.checked = event.target.checked;
  }
  if (event.target.matches("input[data-select], input[data-select-all]")) showSelection();
});

// Fields that depend on a choice: [data-with] (the id of the select) shows itself for [data-values], or if it has content.
function showFitting() {
  for (const part of document.querySelectorAll("[data-with]")) {
    const choice = document.getElementById(part.dataset.with);
    const fits = part.dataset.values.split(" ").includes(choice.value || choice.dataset.default);
    const isFilled = [...part.querySelectorAll("input")].some((input) => input.value);
    part.hidden = !fits && !isFilled && !part.querySelector(".wrong");
  }
}
document.addEventListener("change", (event) => {
  if (event.target.matches("select")) showFitting();
});

// Load a file into a textarea: by input[data-fill] (the id of the textarea) or by drag and drop (textarea[data-drop]).
function fill(text, file) {
  if (!text || !file) return;
  file.text().then((content) => {
    text.value = content;
    text.focus();
  });
}
document.addEventListener("change", (event) => {
  if (event.target.matches("input[data-fill]")) fill(document.getElementById(event.target.dataset.fill), event.target.files[0]);
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    const text = event.target.closest?.("textarea[data-drop]");
    if (!text || !event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    text.toggleAttribute("data-over", kind === "dragover");
    if (kind === "drop") fill(text, event.dataTransfer.files[0]);
  });
}

// --- Charts: the caption shows the values under the pointer or at the keyboard position ------------------------------

// Slices of the plot correspond to rows of the chart's table, newest first.
function readOut(chart, slice) {
  const slices = [...chart.querySelectorAll(".slice")];
  const rows = chart.querySelectorAll("tbody tr");
  const place = slices.indexOf(slice);
  if (place < 0) return;
  const [begin, end] = [place, place - 1].map((one) => rows[one]?.querySelector("time").textContent ?? "now");
  const day = begin.slice(0, begin.lastIndexOf(" ") + 1);
  const said = [...rows[place].querySelectorAll("td.number")].map((cell) => cell.textContent);
  // Fix the height of the caption, so that the plot does not move under the pointer.
  const caption = chart.querySelector("figcaption");
  caption.style.height ||= `${caption.getBoundingClientRect().height}px`;
  chart.classList.add("reading");
  [...chart.querySelectorAll("[data-read]")].forEach((part, index) => {
    part.dataset.now ??= part.textContent;
    part.textContent = said[index] ?? `${begin} to ${end.startsWith(day) ? end.slice(day.length) : end}`;
  });
  for (const one of slices) one.classList.toggle("read", one === slice);
  // Remove the native tooltip, which shows UTC.
  slice.replaceChildren();
}

function readPresent(chart) {
  for (const part of chart.querySelectorAll("[data-now]")) {
    part.textContent = part.dataset.now;
    delete part.dataset.now;
  }
  chart.querySelector(".slice.read")?.classList.remove("read");
  chart.querySelector("figcaption").style.height = "";
  chart.classList.remove("reading");
}

function prepareCharts() {
  for (const plot of document.querySelectorAll("svg.lines")) {
    plot.setAttribute("tabindex", "0");
    const chart = plot.closest(".chart");
    // Restore the reading after a live update.
    const pointed = plot.querySelector(".slice:hover") || (document.activeElement === plot && plot.querySelector(".slice.read"));
    if (pointed) readOut(chart, pointed);
  }
}

document.addEventListener("pointerover", (event) => {
  const slice = event.target.closest?.(".slice");
  if (slice) readOut(slice.closest(".chart"), slice);
});
document.addEventListener("pointerout", (event) => {
  const chart = event.target.closest?.(".slice")?.closest(".chart");
  if (chart && !event.relatedTarget?.closest?.(".slice")) readPresent(chart);
});
document.addEventListener("focusout", (event) => {
  if (event.target.matches?.("svg.lines")) readPresent(event.target.closest(".chart"));
});
document.addEventListener("keydown", (event) => {
  if (!event.target.matches?.("svg.lines")) return;
  const slices = [...event.target.querySelectorAll(".slice")];
  const here = slices.findIndex((slice) => slice.classList.contains("read"));
  const there = { ArrowLeft: here + 1, ArrowRight: here - 1, Home: slices.length - 1, End: 0 }[event.key];
  if (there === undefined) return;
  event.preventDefault();
  const chart = event.target.closest(".chart");
  chart.querySelector("figcaption").setAttribute("aria-live", "polite");
  readOut(chart, slices[Math.max(0, Math.min(slices.length - 1, there))]);
});

// --- Keys ------------------------------------------------------------------------------------------------------------

let isAfterG = false;

function step(direction) {
  const rows = [...document.querySelectorAll("tr[data-row]")].filter((row) => row.querySelector("a.open"));
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  const next = here < 0 ? (direction > 0 ? 0 : rows.length - 1) : here + direction;
  const link = rows[Math.max(0, Math.min(rows.length - 1, next))]?.querySelector("a.open");
  link?.focus();
  link?.closest("tr").scrollIntoView({ block: "nearest" });
}

const KEYS = {
  "/": () => document.querySelector(".filters input[type=search], .filters input:not([type=hidden])")?.focus(),
  "?": () => document.getElementById("keys").showModal(),
  j: () => step(1),
  k: () => step(-1),
  x: () => document.activeElement.closest("tr[data-row]")?.querySelector("input[data-select]")?.click(),
  n: () => document.querySelector("a[rel=next]")?.click(),
  p: () => document.querySelector("a[rel=first]")?.click(),
};

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input:not([type=checkbox]), textarea, select, dialog[open]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !document.getElementById("keys")) return;
  if (isAfterG) {
    isAfterG = false;
    const link = document.querySelector(`#menu a[data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
  } else if (event.key === "g") {
    isAfterG = true;
    setTimeout(() => (isAfterG = false), 1500);
  } else if (KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

// --- Start -----------------------------------------------------------------------------------------------------------

showLocalTimes(document);
showSelection();
showFitting();
prepareCharts();
for (const hint of document.querySelectorAll(".keys-hint, [data-file-hint]")) hint.hidden = false;
// Show the notice of an action once: remove it from the URL.
const address = new URL(window.location.href);
if (address.searchParams.has("done")) {
  address.searchParams.delete("done");
  history.replaceState(null, "", address);
}
listen();
