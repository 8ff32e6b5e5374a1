// Search: every field is in the address, so that what was found can be sent to somebody else.

import { address, badge, callPath, el, fill, level, payloadLine, sessionPath, visibleLine } from "../dom.js";
import { table } from "../table.js";
import { clock, count, localInput, span } from "../words.js";

const TOOLS = ["read_file", "write_file", "edit_file", "list_directory", "search_files", "run_command", "plan.propose", "exec.write", "exec.read", "exec.run", "exec.ls", "exec.test", "exec.install"];
const STATUSES = ["queued", "completed", "denied", "failed", "forbidden", "approval_required", "not_found", "timeout", "interrupted", "cancelled", "limit", "internal"];
const FIELDS = ["queue", "text", "session", "tool", "status", "since_ms", "until_ms", "before"];

export function mount(main, { me, params }) {
  const wanted = Object.fromEntries(FIELDS.map((name) => [name, params[name] ?? ""]));
  document.getElementById("find").value = wanted.text;
  const rows = callsTable("Calls", me);
  const sum = el("p", { class: "lead" });
  const more = el("p", {});
  fill(main, el("h1", {}, "Calls"), form(wanted, me), sum, rows.node, more);
  const asked = address("", wanted);
  const plain = !wanted.text && !wanted.tool && !wanted.before && !wanted.until_ms && (!wanted.status || wanted.status === "queued");
  return {
    title: "Calls",
    follow: plain ? `/api/live/calls${asked}` : null,
    once: plain ? null : `/api/calls${asked}`,
    update(data) {
      const back = data.looked_back_to_ms ? `, back to ${clock(data.looked_back_to_ms)}` : "";
      fill(sum, wanted.status === "queued" ? "The next to run, by due time." : `${count(data.calls.length)} found among ${count(data.looked_at)} ended calls${back}.`);
      rows.update(data.calls);
      fill(more, data.more ? el("a", { href: address("/calls", { ...wanted, before: data.more }) }, "Look further back") : "");
    },
  };
}

/** The table of calls that several pages show. */
export function callsTable(caption, { queues = [], session = true } = {}) {
  return table(
    caption,
    [
      { name: "Tool", text: (c) => visibleLine(c.tool) || "unknown", link: callPath },
      { name: "What", text: (c) => payloadLine(c.about), wide: true },
      { name: "Outcome", text: (c) => c.state + c.code, node: (c) => outcome(c) },
      ...(session ? [{ name: "Session", text: (c) => c.session, link: sessionPath }] : []),
      { name: "At", number: true, text: (c) => clock(c.at_ms) },
      { name: "Waited", number: true, text: (c) => span(c.queued_ms) },
      { name: "Ran", number: true, text: (c) => span(c.run_ms) },
      { name: "Level", text: (c) => c.level, node: (c) => level(c.level) },
      ...(queues.length > 1 ? [{ name: "Queue", text: (c) => c.queue }] : []),
    ],
    (c) => `${c.queue}/${c.session}/${c.call}/${c.entry}`,
    "No such calls.",
  );
}

function outcome(row) {
  const cause = [row.code, row.rule].filter(Boolean).map(visibleLine).join(", ");
  return el("span", {}, badge(row.state), cause ? el("span", { class: "cause" }, ` ${cause}`) : null);
}

function form(wanted, me) {
  const field = (label, control) => el("label", {}, label, control);
  const input = (name, more = {}) => el("input", { name, value: wanted[name], autocomplete: "off", spellcheck: "false", ...more });
  const since = el("input", { type: "datetime-local", step: "1", value: localInput(wanted.since_ms), "data-time": "since_ms" });
  const until = el("input", { type: "datetime-local", step: "1", value: localInput(wanted.until_ms), "data-time": "until_ms" });
  const node = el(
    "form",
    { class: "filters", "aria-label": "Filters", submit: (event) => submit(event, node) },
    me.queues.length > 1 ? field("Queue", select("queue", me.queues, wanted.queue)) : null,
    field("Text in id, command, path or rule", input("text")),
    field("Session", input("session")),
    field("Tool", select("tool", ["", ...TOOLS], wanted.tool)),
    field("Status or error code", input("status", { list: "statuses" })),
    el("datalist", { id: "statuses" }, ...STATUSES.map((each) => el("option", { value: each }))),
    field("From", since),
    field("To", until),
    el("p", { class: "buttons" }, el("button", { class: "main" }, "Search"), el("a", { href: "/calls", class: "button quiet" }, "Clear")),
  );
  return node;
}

function select(name, options, chosen) {
  return el("select", { name }, ...options.map((each) => el("option", { value: each, selected: each === chosen }, each || "any")));
}

function submit(event, node) {
  event.preventDefault();
  const wanted = Object.fromEntries(new FormData(node));
  for (const input of node.querySelectorAll("[data-time]")) {
    const at = new Date(input.value).getTime();
    if (!Number.isNaN(at)) wanted[input.dataset.time] = at;
  }
  location.href = address("/calls", wanted);
}
