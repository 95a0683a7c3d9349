// Optional enhancements: the page works without this script.
"use strict";

document.documentElement.classList.add("js");

const announce = (text) => {
  const live = document.getElementById("live");
  if (live) live.textContent = text;
};

// On wide screens the sidebar is open. The style sheet does the same, but not in every browser.
const wide = window.matchMedia("(min-width: 56rem)");
const unfold = () => {
  const side = document.getElementById("side");
  if (side && wide.matches) side.open = true;
};

const copy = async (button, text) => {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    announce("Copied");
  } catch {
    button.textContent = "Not allowed here";
  }
  setTimeout(() => { button.textContent = label; }, 1500);
};

const open = async (link) => {
  const dialog = document.getElementById("dialog");
  dialog.replaceChildren();
  try {
    await htmx.ajax("GET", link.getAttribute("href"), { target: dialog, swap: "innerHTML ignoreTitle:true", push: "false" });
  } catch {
    location.href = link.href;
    return;
  }
  if (!dialog.open && dialog.childElementCount) dialog.showModal();
};

document.addEventListener("click", (event) => {
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
  const link = event.target.closest("a, button");
  if (!link || !plain) return;
  if (link.matches("[data-copy-address]")) copy(link, location.href);
  if (link.matches("[data-copy]")) copy(link, document.querySelector(link.dataset.copy).textContent);
  if (link.matches("[data-dialog]") && window.htmx) {
    event.preventDefault();
    open(link);
  }
  if (link.matches("[data-close]") && link.closest("dialog")) {
    event.preventDefault();
    link.closest("dialog").close();
  }
});

document.addEventListener("click", (event) => {
  // A click outside the dialog closes it.
  if (event.target instanceof HTMLDialogElement) event.target.close();
});

document.addEventListener("input", (event) => {
  if (event.target.id !== "least") return;
  const value = Number(event.target.value);
  document.getElementById("least-said").textContent = value ? value.toFixed(2) : "any";
});

// No polling while the page is hidden.
document.addEventListener("htmx:before:request", (event) => {
  const source = event.detail.ctx?.sourceElement;
  if (document.hidden && source?.getAttribute("hx-trigger")?.startsWith("every")) event.preventDefault();
});

// While the server, or a proxy before it, does not answer, a message is shown and the server is polled.
const AWAY = "The server cannot be reached. What is shown may be out of date.";
const POLL_MS = 3000;
let polling = null;
const setAway = (away) => {
  const bar = document.getElementById("away");
  const text = away ? AWAY : "";
  if (bar && bar.textContent !== text) bar.textContent = text;
  if (away && polling === null) polling = setInterval(pollServer, POLL_MS);
  if (!away && polling !== null) {
    clearInterval(polling);
    polling = null;
  }
};

const pollServer = async () => {
  if (document.hidden) return;
  try {
    const reply = await fetch("/livez", { cache: "no-store", signal: AbortSignal.timeout(POLL_MS) });
    if (reply.status < 500) setAway(false);
  } catch {
    // Still unreachable.
  }
};

document.addEventListener("htmx:error", (event) => {
  // Connection refused, closed, or timed out before the reply was complete; other errors have a text, or no request.
  if (event.detail.ctx && event.detail.ctx.text === undefined) setAway(true);
});

document.addEventListener("htmx:after:request", (event) => {
  // Sent by a proxy if the server is unreachable. Errors of the server are shown on the page.
  setAway([502, 504].includes(event.detail.ctx?.response?.status));
});

// Keep open what was open in the sidebar.
let folded = null;
document.addEventListener("htmx:before:swap", () => {
  const side = document.getElementById("side");
  folded = side ? { open: side.open, more: [...side.querySelectorAll("details.more")].map((each) => each.open) } : null;
});

document.addEventListener("htmx:after:swap", () => {
  const side = document.getElementById("side");
  if (side && folded) {
    side.open = folded.open;
    [...side.querySelectorAll("details.more")].forEach((each, place) => { each.open = Boolean(folded.more[place]); });
  }
  unfold();
  const total = document.getElementById("total")?.textContent.trim();
  if (total && total !== document.getElementById("live")?.textContent) announce(total);
});

document.addEventListener("DOMContentLoaded", unfold);
