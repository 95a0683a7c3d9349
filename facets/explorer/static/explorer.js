// What HTML alone cannot do. The page works without any of this: everything here is a comfort.
"use strict";

document.documentElement.classList.add("js");

const say = (text) => {
  const live = document.getElementById("live");
  if (live) live.textContent = text;
};

// Where there is room, the sidebar is not folded away. The style sheet does so too, but not for every browser and tool.
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
    say("Copied");
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
  // A click beside the dialog closes it.
  if (event.target instanceof HTMLDialogElement) event.target.close();
});

document.addEventListener("input", (event) => {
  if (event.target.id !== "least") return;
  const value = Number(event.target.value);
  document.getElementById("least-said").textContent = value ? value.toFixed(2) : "any";
});

// Nobody looks: nothing is asked for.
document.addEventListener("htmx:before:request", (event) => {
  const source = event.detail.ctx?.sourceElement;
  if (document.hidden && source?.getAttribute("hx-trigger")?.startsWith("every")) event.preventDefault();
});

// The server, or what stands before it, does not answer: said until it does, which is asked every few seconds.
const AWAY = "The server cannot be reached. What is shown may be out of date.";
const ASK_AGAIN_MS = 3000;
let asking = null;
const setAway = (away) => {
  const bar = document.getElementById("away");
  const text = away ? AWAY : "";
  if (bar && bar.textContent !== text) bar.textContent = text;
  if (away && asking === null) asking = setInterval(askAgain, ASK_AGAIN_MS);
  if (!away && asking !== null) {
    clearInterval(asking);
    asking = null;
  }
};

const askAgain = async () => {
  if (document.hidden) return;
  try {
    const reply = await fetch("/livez", { cache: "no-store", signal: AbortSignal.timeout(ASK_AGAIN_MS) });
    if (reply.status < 500) setAway(false);
  } catch {
    // Still away.
  }
};

document.addEventListener("htmx:error", (event) => {
  // Refused, cut or timed out before its text was whole; any other error has one, or no request.
  if (event.detail.ctx && event.detail.ctx.text === undefined) setAway(true);
});

document.addEventListener("htmx:after:request", (event) => {
  // A proxy says so for a server that is away. What the server itself refuses is shown on the page.
  setAway([502, 504].includes(event.detail.ctx?.response?.status));
});

// The sidebar stays as far open as it was.
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
  if (total && total !== document.getElementById("live")?.textContent) say(total);
});

document.addEventListener("DOMContentLoaded", unfold);
