// Denials and failures by cause, the most frequent first.

import { address, badge, callPath, el, fill, payloadLine, visibleLine } from "../dom.js";
import { table } from "../table.js";
import { ago, clock, count, many } from "../words.js";

export function mount(main) {
  let nowMs = 0;
  const sum = el("p", { class: "lead" });
  const groups = table(
    "Causes",
    [
      { name: "Cause", text: (g) => cause(g), link: (g) => address("/calls", { queue: g.queue, status: g.code || g.kind, tool: g.tool, text: g.rule }) },
      { name: "Kind", text: (g) => g.kind, node: (g) => badge(g.kind) },
      { name: "Tool", text: (g) => visibleLine(g.tool) || "unknown" },
      { name: "Calls", number: true, text: (g) => count(g.count) },
      { name: "Sessions", number: true, text: (g) => count(g.sessions) },
      { name: "Last", number: true, text: (g) => ago(g.last_ms, nowMs) },
      { name: "Latest", text: (g) => g.latest[0]?.entry ?? "", node: (g) => el("a", { href: callPath(g.latest[0]) }, payloadLine(g.latest[0].about) || g.latest[0].call), wide: true },
    ],
    (g) => [g.queue, g.kind, g.code, g.policy, g.rule, g.tool].join("\u0000"),
    "Nothing was denied, and nothing failed.",
  );
  const dead = table(
    "Dead letters",
    [
      { name: "Entry", text: (d) => visibleLine(d.id), wide: true },
      { name: "Why", text: (d) => visibleLine(d.why), wide: true },
      { name: "At", number: true, text: (d) => clock(d.at_ms) },
      { name: "Queue", text: (d) => d.queue },
    ],
    (d) => `${d.at_ms}/${d.id}`,
    "None: every queue entry could be answered.",
  );
  fill(main, el("h1", {}, "Denials and failures"), sum, groups.node, el("section", { "aria-labelledby": "dead" }, el("h2", { id: "dead" }, "Dead letters"), dead.node));
  return {
    title: "Failures",
    follow: "/api/live/failures",
    update(data) {
      nowMs = data.now_ms;
      const of = (kind) => data.groups.filter((group) => group.kind === kind).reduce((total, group) => total + group.count, 0);
      const back = data.looked_back_to_ms ? `, back to ${clock(data.looked_back_to_ms)}` : "";
      fill(sum, `Among the latest ${many(data.looked_at, "call")}${back}: ${count(of("denied"))} denied, ${count(of("failed"))} failed.`);
      groups.update(data.groups);
      dead.update(data.dead);
    },
  };
}

function cause(group) {
  return [group.code || group.kind, group.policy, group.rule].filter(Boolean).map(visibleLine).join(" · ");
}
