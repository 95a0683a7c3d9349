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
  try {
    await htmx.ajax("GET", link.getAttribute("href"), { target: dialog, swap: "innerHTML ignoreTitle:true", push: "false" });
  } catch {
    location.href = link.href;
    return;
  }
  if (!dialog.open) dialog.showModal();
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
