// The sessions that were active lately.

import { address, el, fill, level, sessionPath, visibleLine } from "../dom.js";
import { table } from "../table.js";
import { ago, clock, count, many } from "../words.js";

export function mount(main, { me, params }) {
  let nowMs = 0;
  const queue = me.queues.includes(params.queue) ? params.queue : me.queues[0];
  const before = params.before ?? "";
  const sum = el("p", { class: "lead" });
  const more = el("p", {});
  const rows = table(
    "Sessions",
    [
      { name: "Session", text: (s) => s.session, link: sessionPath },
      { name: "Taint", text: (s) => s.taint, node: (s) => level(s.taint) },
      { name: "Mode", text: (s) => visibleLine(s.mode), mark: (s) => s.mode !== "normal" },
      { name: "Workspace", text: (s) => visibleLine(s.workspace) },
      { name: "Calls", number: true, text: (s) => count(s.calls) },
      { name: "Denied", number: true, text: (s) => count(s.denied), mark: (s) => s.denied > 0 },
      { name: "Failed", number: true, text: (s) => count(s.failed), mark: (s) => s.failed > 0 },
      { name: "Last call", number: true, text: (s) => ago(s.last_ms, nowMs) },
      { name: "Opened by", text: (s) => (s.opened ? "orchestrator" : "first call") },
    ],
    (s) => s.session,
    "No session has ended a call yet.",
  );
  fill(main, el("h1", {}, "Sessions"), queues(me, queue), jump(queue), sum, rows.node, more);
  const asked = address("", { queue, before });
  return {
    title: "Sessions",
    follow: before ? null : `/api/live/sessions${asked}`,
    once: before ? `/api/sessions${asked}` : null,
    update(data) {
      nowMs = data.now_ms;
      const back = data.looked_back_to_ms ? `, back to ${clock(data.looked_back_to_ms)}` : "";
      fill(sum, `${many(data.seen, "session")} in the latest ${count(data.looked_at)} calls${back}.`);
      rows.update(data.sessions);
      fill(more, data.more ? el("a", { href: address("/sessions", { queue, before: data.more }) }, "Earlier sessions") : "");
    },
  };
}

function queues(me, chosen) {
  if (me.queues.length < 2) return null;
  const links = me.queues.map((queue) => el("a", { href: address("/sessions", { queue }), "aria-current": queue === chosen && "true" }, queue));
  return el("nav", { class: "choice", "aria-label": "Queue" }, ...links);
}

function jump(queue) {
  const input = el("input", { name: "session", autocomplete: "off", spellcheck: "false", required: true, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}" });
  const go = (event) => {
    event.preventDefault();
    location.href = sessionPath({ queue, session: input.value.trim() });
  };
  return el("form", { class: "filters", "aria-label": "Open a session", submit: go }, el("label", {}, "Session by name", input), el("p", { class: "buttons" }, el("button", { class: "main" }, "Open")));
}
