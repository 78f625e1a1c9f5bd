"use strict";

// Asks for this page every two seconds and swaps the list when it has changed. Without it the page reloads by itself.
(() => {
  const INTERVAL_MS = 2000;
  const state = document.getElementById("state");
  let etag = null;

  async function refresh() {
    if (document.hidden || isSelecting()) return;
    const headers = etag ? { "If-None-Match": etag } : {};
    const response = await fetch(location.href, { headers, cache: "no-store" });
    if (response.status === 304) return;
    if (!response.ok) throw new Error(`status ${response.status}`);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    etag = response.headers.get("ETag");
    swap(page);
  }

  function swap(page) {
    const now = document.getElementById("mails");
    const next = page.getElementById("mails");
    if (!next || next.isEqualNode(now)) return;
    const known = new Set(numbers(now));
    const hadRows = known.size > 0;
    const focused = now.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    document.title = page.title;
    now.replaceChildren(...next.childNodes);
    if (hadRows) {
      for (const row of now.querySelectorAll("tr[data-number]")) {
        if (!known.has(row.dataset.number)) row.classList.add("is-new");
      }
    }
    if (focused) now.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  function numbers(list) {
    return Array.from(list.querySelectorAll("tr[data-number]"), (row) => row.dataset.number);
  }

  // Whoever is just copying an address should not have it pulled away.
  function isSelecting() {
    const selection = document.getSelection();
    return !selection.isCollapsed && document.getElementById("mails").contains(selection.anchorNode);
  }

  function show(isLive) {
    const text = isLive ? "live" : "not connected";
    if (state.textContent === text) return;
    state.textContent = text;
    state.classList.toggle("is-live", isLive);
    state.classList.toggle("is-lost", !isLive);
  }

  async function run() {
    try {
      await refresh();
      show(true);
    } catch {
      show(false);
    }
    setTimeout(run, INTERVAL_MS);
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) refresh().catch(() => show(false));
  });
  run();
})();
