// Small comforts: local times, pages that bring themselves up to date, questions in a dialog, keys. Every page works
// without this file.
"use strict";

// --- Times: yours, with UTC on hover -------------------------------------------------------------------------------

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

function tellLocalTimes(root) {
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
    // On the axis of a chart there is room for the one thing that its ticks count.
    const date = isToday || time.dataset.form === "minute" ? "" : `${day}${year} `;
    time.textContent = time.dataset.form === "day" ? day : date + moment.toLocaleTimeString("en-GB", clock);
    time.dataset.local = "";
  }
  const told = document.getElementById("zone");
  if (told) told.textContent = `times are yours (${zone}); hold the pointer over one for UTC`;
  // A form that asks for times says whose they are, and shows them so; without scripts they are UTC.
  for (const field of root.querySelectorAll("input[type=hidden][name=zone]")) field.value = zone;
  for (const told of root.querySelectorAll("[data-zone]")) told.textContent = "";
  for (const field of root.querySelectorAll("input[data-moment]")) {
    const moment = new Date(field.dataset.moment);
    const local = new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString();
    field.value = local.slice(0, moment.getSeconds() === 0 ? 16 : 19);
    delete field.dataset.moment;
  }
}

// --- Live: the page is told that something changed, and fetches itself anew ------------------------------------------

const REST_MS = 1500; // however much changes, a page fetches itself no more often
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

// A browser has few connections to one server: a tab that nobody looks at keeps none.
function listen() {
  const live = liveRegion();
  if (document.hidden || !live) {
    if (stream) stream.close();
    stream = null;
    return;
  }
  if (stream) return;
  stream = new EventSource("/live");
  for (const topic of live.dataset.topics.split(" ")) stream.addEventListener(topic, refresh);
  stream.addEventListener("error", () => {
    // The browser tries again by itself unless it was refused; then the page asks every quarter of a minute.
    if (stream && stream.readyState === EventSource.CLOSED) stream = null;
  });
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && liveRegion()) refresh();
  listen();
});

// A list must not move under the hand that points at it: rows change in place, and new ones wait until they are asked
// for, or the hand is gone.
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
  // What the visitor did to the page stays: local times, what is open, what is selected, and as what he saw it.
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

function tellHeldBack(live) {
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
  tellLocalTimes(document);
  prepareCharts();
  if (event.detail.target.id !== "live") return;
  const live = document.getElementById("live");
  if (live) tellHeldBack(live);
  tellSelection();
  isHolding = false;
  listen();
});

function setOffline(isOffline) {
  document.getElementById("offline").hidden = !isOffline;
}
document.addEventListener("htmx:sendError", () => setOffline(true));
document.addEventListener("htmx:responseError", () => setOffline(true));

// --- Forms ---------------------------------------------------------------------------------------------------------

// A link with data-dialog leads to a question. It is asked in a dialog on this page; without scripts it is a page.
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
    tellLocalTimes(dialog);
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
  // A form with data-dialog leads to a question as a link does, with what was selected.
  if (event.target.dataset.dialog !== undefined) {
    event.preventDefault();
    openDialog(`${event.target.action}?${new URLSearchParams(new FormData(event.target, button))}`);
    return;
  }
  // One press is enough; the button comes back if the browser shows this page again.
  if (event.target.method === "post" && button) setTimeout(() => (button.disabled = true));
  // Fields left empty need not stand in the address.
  if (event.target.method === "get") {
    for (const field of event.target.elements) if (field.name && field.value === "") field.disabled = true;
    const times = ["from", "to"].map((name) => event.target.elements[name]).filter((field) => field?.value);
    if (event.target.elements.zone && times.length === 0) event.target.elements.zone.disabled = true;
  }
});
window.addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("button:disabled, .filters :disabled")) field.disabled = false;
});

// What was selected in a list: how many, and all at once. The boxes are input[data-select], the head's one
// input[data-select-all]; what tells of it is shown by [data-selected].
function tellSelection() {
  const boxes = [...document.querySelectorAll("input[data-select]")];
  const count = boxes.filter((box) => box.checked).length;
  for (const told of document.querySelectorAll("[data-selected]")) {
    told.hidden = count === 0;
    for (const number of told.querySelectorAll("[data-selected-count]")) number.textContent = count;
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
  if (event.target.matches("input[data-select], input[data-select-all]")) tellSelection();
});

// A file may be chosen for a text (input[data-fill], the text's id) or dropped on it (textarea[data-drop]).
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

// --- Charts: what one points at, or comes to by the arrows, stands in the caption in place of the present --------------

// The slices of the plot are the rows of the chart's table: one for each, in the same order, the newest first.
function readOut(chart, slice) {
  const slices = [...chart.querySelectorAll(".slice")];
  const rows = chart.querySelectorAll("tbody tr");
  const place = slices.indexOf(slice);
  if (place < 0) return;
  const [begin, end] = [place, place - 1].map((one) => rows[one]?.querySelector("time").textContent ?? "now");
  const day = begin.slice(0, begin.lastIndexOf(" ") + 1);
  const said = [...rows[place].querySelectorAll("td.number")].map((cell) => cell.textContent);
  // The plot must not move under the pointer because its caption has more or less to say.
  const caption = chart.querySelector("figcaption");
  caption.style.height ||= `${caption.getBoundingClientRect().height}px`;
  chart.classList.add("reading");
  [...chart.querySelectorAll("[data-read]")].forEach((part, index) => {
    part.dataset.now ??= part.textContent;
    part.textContent = said[index] ?? `${begin} to ${end.startsWith(day) ? end.slice(day.length) : end}`;
  });
  for (const one of slices) one.classList.toggle("read", one === slice);
  // What the browser would say by itself, in UTC, and later.
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
    // The page has come anew under the pointer.
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

// --- Begin -----------------------------------------------------------------------------------------------------------

tellLocalTimes(document);
tellSelection();
prepareCharts();
for (const hint of document.querySelectorAll(".keys-hint, [data-file-hint]")) hint.hidden = false;
// What an act came to is said once: the address keeps nothing of it.
const address = new URL(window.location.href);
if (address.searchParams.has("done")) {
  address.searchParams.delete("done");
  history.replaceState(null, "", address);
}
// On a narrow screen the menu scrolls sideways: the page one is on must be seen in it.
const current = document.querySelector("#menu a[aria-current]");
const menu = document.getElementById("menu");
if (current && menu.scrollWidth > menu.clientWidth) menu.scrollLeft = current.offsetLeft - menu.clientWidth / 3;
listen();
