// What every page shares: which page this is, who looks, whether the data is live, the theme, the keys.

import { askForToken, showKeys } from "./dialogs.js";
import { el, fill, say } from "./dom.js";
import { follow, get, token } from "./live.js";
import { clock } from "./words.js";

const NAME = "([^/]+)";
const PAGES = [
  [/^\/$/, "overview", []],
  [/^\/workers$/, "workers", []],
  [/^\/running$/, "running", []],
  [new RegExp(`^/calls/${NAME}/${NAME}/${NAME}$`), "call", ["queue", "session", "call"]],
  [/^\/calls$/, "calls", []],
  [new RegExp(`^/sessions/${NAME}/${NAME}$`), "session", ["queue", "session"]],
  [/^\/sessions$/, "sessions", []],
  [/^\/plans$/, "plans", []],
  [/^\/failures$/, "failures", []],
];
const KEYS = [
  ["/", "search"],
  ["g o", "overview"],
  ["g r", "running calls"],
  ["g p", "plans"],
  ["g f", "failures"],
  ["g c", "calls"],
  ["g s", "sessions"],
  ["g w", "workers"],
  ["j", "next row"],
  ["k", "row before"],
  ["Enter", "open the row"],
  ["t", "light or dark"],
  ["?", "this list"],
];
const GO = { o: "/", r: "/running", p: "/plans", f: "/failures", c: "/calls", s: "/sessions", w: "/workers" };

const main = document.getElementById("main");
const connection = document.getElementById("connection");

function thisPage() {
  for (const [pattern, name, parts] of PAGES) {
    const found = pattern.exec(location.pathname);
    if (found) {
      const given = Object.fromEntries(parts.map((part, at) => [part, decodeURIComponent(found[at + 1])]));
      return { name, params: { ...Object.fromEntries(new URLSearchParams(location.search)), ...given } };
    }
  }
  return { name: "overview", params: {} };
}

function markPage(name) {
  const of = { call: "/calls", session: "/sessions", overview: "/" };
  const here = of[name] ?? `/${name}`;
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.getAttribute("href") === here) link.setAttribute("aria-current", "page");
  }
}

function state(kind, text) {
  connection.className = `connection ${kind}`;
  say(connection, text);
}

// -- the page's data

async function start() {
  const { name, params } = thisPage();
  markPage(name);
  const me = await whoLooks();
  if (!me) return;
  const page = await import(`./pages/${name}.js`);
  const shown = page.mount(main, { me, params, title });
  title(shown.title);
  let lastMs = 0;
  if (shown.once) {
    await showOnce(shown);
    return;
  }
  follow(shown.follow, (event, data) => {
    if (event === "view") {
      lastMs = data.now_ms;
      main.removeAttribute("aria-busy");
      state("live", `Live. Read ${clock(lastMs)}`);
      shown.update(data);
    } else if (event === "paused") state("paused", "Paused while this tab is hidden");
    else if (event === "lost") state("lost", `Redis is out of reach: ${data.message}. ${old(lastMs)}`);
    else if (event === "broken") state("lost", `The dashboard does not answer; trying again. ${old(lastMs)}`);
    else if (event === "unknown") state("paused", data.message);
    else if (event === "refused") refused(data);
  });
}

async function showOnce(shown) {
  state("paused", "Reading…");
  try {
    const data = await get(shown.once);
    state("live", `Read ${clock(data.now_ms)}; reload to look again`);
    shown.update(data);
  } catch (error) {
    refused(error);
  }
}

function old(lastMs) {
  return lastMs ? `What is shown was true at ${clock(lastMs)}.` : "";
}

function refused(error) {
  const title = error.status === 404 ? "Not found" : error.status === 401 ? "Sign in to look" : "This can't be shown";
  state("paused", title);
  fill(main, el("h1", {}, title), el("p", {}, error.message));
}

function title(text, alerts = 0) {
  document.title = `${alerts ? `(${alerts}) ` : ""}${text} · toolreef`;
}

// -- who looks

async function whoLooks() {
  const button = document.getElementById("person");
  for (let wait = 500; ; wait = Math.min(4000, wait * 2)) {
    try {
      const me = await get("/api/me");
      button.hidden = !me.sign_in;
      say(button, token() ? me.name : "Sign in");
      button.addEventListener("click", () => askForToken(token() ? me : null, () => location.reload()));
      return me;
    } catch (error) {
      if (error.status === 401) {
        button.hidden = false;
        button.addEventListener("click", () => askForToken(null, () => location.reload()));
        refused(error);
        askForToken(null, () => location.reload());
        return null;
      }
      if (error.status) {
        refused(error);
        return null;
      }
      state("lost", "The dashboard does not answer; trying again.");
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

// -- theme

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function turnTheme() {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("toolreef.theme", next);
  } catch {
    // It lasts as long as this page, then.
  }
  themeWord();
  dispatchEvent(new Event("theme"));
}

function themeWord() {
  say(document.getElementById("theme"), isDark() ? "Light" : "Dark");
}

// -- keys

let before = "";

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const key = event.key;
  if (before === "g" && GO[key]) location.href = GO[key];
  else if (key === "/") document.getElementById("find").focus();
  else if (key === "?") showKeys(KEYS);
  else if (key === "t") turnTheme();
  else if (key === "j" || key === "k") step(key === "j" ? 1 : -1);
  else {
    before = key === "g" ? "g" : "";
    return;
  }
  before = "";
  event.preventDefault();
}

function step(by) {
  const rows = [...main.querySelectorAll("tr[data-row] td:first-child a, tr[data-row] td:first-child button")];
  const at = rows.findIndex((row) => row.closest("tr").contains(document.activeElement));
  rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by))]?.focus();
}

document.addEventListener("keydown", pressed);
document.getElementById("theme").addEventListener("click", turnTheme);
document.getElementById("help").addEventListener("click", () => showKeys(KEYS));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  themeWord();
  dispatchEvent(new Event("theme"));
});
themeWord();
main.setAttribute("aria-busy", "true");
start();
