// Everything that is shown goes through here, as text. Nothing in this folder parses HTML from data.

/** An element. `attributes` with a function value are listeners; children are nodes or texts, which are made visible. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, visible(value));
  }
  node.append(...shown(children));
  return node;
}

/** Sets an element's text if it differs, so that selection and focus survive what did not change. */
export function say(node, text) {
  const clean = visible(text);
  if (node.textContent !== clean) node.textContent = clean;
}

/** Puts `children` into `node` in place of what was there. */
export function fill(node, ...children) {
  node.replaceChildren(...shown(children));
}

function shown(children) {
  const kept = children.filter((child) => child !== null && child !== undefined && child !== "");
  return kept.map((child) => (child instanceof Node ? child : visible(child)));
}

// Controls, escapes and the characters that reorder or hide text. A line end and a tab may stay.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu;

/** Text with every character that would hide, reorder or colour something named. Doing it twice changes nothing. */
export function visible(text) {
  return String(text).replace(UNSEEN, (found) => {
    const code = found.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** The same for one line. */
export function visibleLine(text) {
  return visible(String(text).replace(/\r?\n/g, " ⏎ ").replace(/\t/g, " "));
}

const LEVELS = ["PUBLIC", "INTERNAL", "CONFIDENTIAL", "RESTRICTED"];

/** A word in a coloured frame; what it means never hangs on the colour. */
export function badge(word, kind = word) {
  return el("span", { class: `badge ${cssName(kind)}` }, visibleLine(word));
}

/** A classification level. */
export function level(name) {
  return badge(name, LEVELS.includes(name) ? `level-${name.toLowerCase()}` : "level-restricted");
}

function cssName(kind) {
  return String(kind).replace(/[^A-Za-z0-9-]/g, "-");
}

/** A path of a page, each part encoded. */
export function path(...parts) {
  return "/" + parts.map(encodeURIComponent).join("/");
}

/** An address with those parameters that have a value. */
export function address(to, params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value !== "" && value !== null && value !== undefined) query.set(name, value);
  const text = query.toString();
  return text ? `${to}?${text}` : to;
}

/** The page of a call. `entry` is where the audit stream has it. */
export function callPath(row) {
  return address(path("calls", row.queue, row.session, row.call), { entry: row.entry });
}

/** The page of a session. */
export function sessionPath(row) {
  return path("sessions", row.queue, row.session);
}

/** What the server let through of a payload, as one line. */
export function payloadLine(payload) {
  if (payload.withheld) return `withheld: ${payload.withheld}`;
  if (payload.value === null || payload.value === undefined) return "";
  return visibleLine(typeof payload.value === "string" ? payload.value : JSON.stringify(payload.value));
}

/** What the server let through of a payload, whole, with what it left out said beside it. */
export function payloadBlock(payload, empty = "Nothing.") {
  const notes = [];
  if (payload.withheld) notes.push(`Withheld: ${payload.withheld} is above what this dashboard shows (option --payloads).`);
  if (payload.redacted?.length) notes.push(`Redacted: ${payload.redacted.map(visibleLine).join(", ")}.`);
  if (payload.omitted_chars) notes.push(`${payload.omitted_chars.toLocaleString("en")} characters left out.`);
  if (payload.note) notes.push(`${payload.note[0].toUpperCase()}${payload.note.slice(1)}.`);
  const block = el("div", { class: "payload" });
  if (payload.value !== null && payload.value !== undefined) block.append(valueBlock(payload.value));
  else if (!notes.length) notes.push(empty);
  if (notes.length) block.append(el("p", { class: "note" }, notes.join(" ")));
  return block;
}

function valueBlock(value) {
  if (typeof value === "string") return pre(value);
  if (value === null || typeof value !== "object") return el("code", {}, String(value));
  if (Array.isArray(value)) return pre(value.every((item) => typeof item === "string") ? value.join("\n") : pretty(value));
  const list = el("dl", { class: "fields" });
  for (const [name, item] of Object.entries(value)) {
    if (item === null || item === "" || (Array.isArray(item) && !item.length)) continue;
    list.append(el("dt", {}, visibleLine(name)), el("dd", {}, fieldBlock(item)));
  }
  return list;
}

function fieldBlock(item) {
  if (typeof item === "string") return item.length > 100 || item.includes("\n") ? pre(item) : el("code", {}, visibleLine(item));
  if (item !== null && typeof item === "object") return pre(pretty(item));
  return el("code", {}, String(item));
}

function pretty(value) {
  return JSON.stringify(value, null, 2);
}

/** Names and values beside each other. `update([[name, text, make?]])` touches what changed; `make` gives a node. */
export function factList() {
  const node = el("dl", { class: "facts" });
  const facts = new Map();
  function update(list) {
    for (const [name, text, make] of list) {
      let fact = facts.get(name);
      if (!fact) {
        fact = { value: el("dd", {}), said: null };
        facts.set(name, fact);
        node.append(el("div", {}, el("dt", {}, name), fact.value));
      }
      if (fact.said === text) continue;
      fact.said = text;
      fill(fact.value, make ? make(text) : text);
    }
  }
  return { node, update };
}

/** A block of text, scrolled by keys too. */
export function pre(text) {
  return el("pre", { tabindex: "0" }, String(text));
}
