"use strict";
// "/" puts the cursor into the search, Ctrl+Enter runs a query, queries and the change feed are
// loaded without a new page. Every page also works without this script.

async function loaded(address, request) {
  const reply = await fetch(address, request);
  return new DOMParser().parseFromString(await reply.text(), "text/html");
}

document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.getElementById("search").focus();
  }
});

const form = document.getElementById("sql");
if (form) {
  const result = document.getElementById("result");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = new URLSearchParams(new FormData(form));
    if (event.submitter && event.submitter.id === "cancel") {
      await fetch("/sql/cancel", { method: "POST", body });
      return;
    }
    const text = body.get("q");
    if (text.length < 2000) {
      const query = "?q=" + encodeURIComponent(text);
      history.replaceState(null, "", "/sql" + query);
      const json = document.querySelector("footer [href^='/sql.json']");
      if (json) json.href = "/sql.json" + query;
    }
    result.textContent = "Running …";
    result.setAttribute("aria-busy", "true");
    try {
      const page = await loaded("/sql", { method: "POST", body });
      const found = page.getElementById("result") || page.getElementById("main");
      result.replaceChildren(...found.childNodes);
      const next = page.querySelector("#sql [name=id]");
      if (next) form.elements.id.value = next.value;
    } catch {
      result.textContent = "The server does not answer.";
    }
    result.removeAttribute("aria-busy");
  });
  form.elements.q.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}

const feed = document.querySelector("[data-poll]");
async function poll() {
  try {
    const page = document.hidden ? null : await loaded(feed.dataset.poll);
    const next = page && page.querySelector("[data-poll]");
    if (next) {
      const rows = feed.querySelector("tbody");
      rows.prepend(...next.querySelectorAll("tbody tr"));
      while (rows.children.length > 500) rows.lastChild.remove();
      feed.dataset.poll = next.dataset.poll;
    }
  } catch {
    // the server is away: ask again later
  }
  setTimeout(poll, 2000);
}
if (feed) setTimeout(poll, 2000);
