// Every worker process by its last heartbeat.

import { badge, el, fill, visibleLine } from "../dom.js";
import { table } from "../table.js";
import { count, many, span } from "../words.js";

const STATES = { serving: "serving", draining: "draining", silent: "silent" };

export function mount(main) {
  const sum = el("p", { class: "lead" });
  const rows = table(
    "Workers",
    [
      { name: "Worker", text: (w) => visibleLine(w.worker), wide: true },
      { name: "State", text: (w) => STATES[w.state], node: (w) => badge(w.state, w.state === "silent" ? "failed" : w.state === "draining" ? "denied" : "completed") },
      { name: "Heard of", number: true, text: (w) => `${span(w.age_ms)} ago`, mark: (w) => w.state === "silent" },
      { name: "Slots", number: true, text: (w) => `${count(w.running)} of ${count(w.slots)}` },
      { name: "Queues", text: (w) => w.queues.map(visibleLine).join(", ") },
      { name: "Sandbox", text: (w) => visibleLine(w.sandbox), mark: (w) => w.sandbox === "none" || w.sandbox === "off" },
      { name: "Version", text: (w) => visibleLine(w.version) },
      { name: "Completed", number: true, text: (w) => count(w.completed) },
      { name: "Denied", number: true, text: (w) => count(w.denied) },
      { name: "Failed", number: true, text: (w) => count(w.failed) },
      { name: "Reconnects", number: true, text: (w) => count(w.reconnects) },
    ],
    (w) => w.worker,
    "No worker has been heard of. Start one: toolreef worker",
  );
  fill(main, el("h1", {}, "Workers"), sum, rows.node);
  return {
    title: "Workers",
    follow: "/api/live/workers",
    update(data) {
      const of = (state) => data.workers.filter((each) => each.state === state).length;
      const text = [many(of("serving"), "worker serves", "workers serve")];
      if (of("draining")) text.push(many(of("draining"), "is draining", "are draining"));
      if (of("silent")) text.push(many(of("silent"), "is silent", "are silent"));
      const versions = new Set(data.workers.map((each) => each.version));
      if (versions.size > 1) text.push(`${versions.size} versions are mixed`);
      fill(sum, `${text.join(", ")}.`);
      rows.update(data.workers);
    },
  };
}
