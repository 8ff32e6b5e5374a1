// What runs now, the longest first.

import { askToCancel } from "../dialogs.js";
import { badge, callPath, el, fill, payloadLine, sessionPath, visibleLine } from "../dom.js";
import { table } from "../table.js";
import { count, many, span } from "../words.js";

export function mount(main, { me }) {
  const sum = el("p", { class: "lead" });
  let nowMs = 0;
  const columns = [
    { name: "Tool", text: (c) => visibleLine(c.tool) || "unknown", link: callPath },
    { name: "What", text: (c) => payloadLine(c.about), wide: true },
    { name: "Runs for", number: true, text: (c) => (c.started_ms ? span(nowMs - c.started_ms) : c.state === "granted" ? "not yet" : "–") },
    { name: "State", text: (c) => (c.cancelling ? "cancelling" : c.state), node: (c) => badge(c.cancelling ? "cancelling" : c.state, c.cancelling ? "denied" : "running") },
    { name: "Session", text: (c) => c.session, link: sessionPath },
    { name: "Last output", text: (c) => payloadLine(c.last_output), wide: true },
    { name: "Worker", text: (c) => visibleLine(c.worker) },
    { name: "Attempt", number: true, text: (c) => count(c.attempt) },
  ];
  if (me.can_cancel) columns.push({ name: "Do", text: (c) => (c.cancelling ? " " : "cancel"), node: cancelButton });
  const rows = table("Running calls", columns, (c) => `${c.queue}/${c.session}/${c.call}`, "Nothing runs.");
  fill(main, el("h1", {}, "Running calls"), sum, rows.node);
  return {
    title: "Running",
    follow: "/api/live/running",
    update(data) {
      nowMs = data.now_ms;
      const hidden = data.total - data.calls.length;
      fill(sum, `${many(data.total, "call is", "calls are")} claimed${hidden > 0 ? `; the ${count(data.calls.length)} that run longest are shown` : ""}.`);
      rows.update(data.calls);
    },
  };
}

function cancelButton(row) {
  return row.cancelling ? "" : el("button", { class: "danger small", click: () => askToCancel(row), "aria-label": `Cancel call ${row.call}` }, "Cancel");
}
