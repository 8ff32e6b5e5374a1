// The first page: is anything wrong, and how does each queue do.

import { chart } from "../charts.js";
import { address, el, fill, say } from "../dom.js";
import { table } from "../table.js";
import { count, many, percent, perSecond, span } from "../words.js";

const WINDOWS = ["10m", "1h", "6h", "24h"];
const DEPTHS = 600;

export function mount(main, { me, params, title }) {
  const chosen = me.queues.includes(params.queue) ? params.queue : me.queues[0];
  const window = WINDOWS.includes(params.window) ? params.window : "10m";
  const verdict = el("section", { class: "verdict", "aria-label": "Verdict" });
  const tiles = new Tiles();
  const compare = me.queues.length > 1 ? queuesTable(window) : null;
  const charts = [
    chart("Calls ended", [{ name: "completed", colour: "--good" }, { name: "failed", colour: "--bad" }, { name: "denied", colour: "--odd" }], perSecond),
    chart("Wait in the queue", [{ name: "median", colour: "--one" }, { name: "p95", colour: "--two" }], span),
    chart("Run time", [{ name: "median", colour: "--one" }, { name: "p95", colour: "--two" }], span),
    chart("Waiting, since this page was opened", [{ name: "calls", colour: "--one" }], count, true),
  ];
  fill(
    main,
    el("h1", { class: "hidden" }, "Overview"),
    verdict,
    compare?.node,
    el("section", { "aria-labelledby": "queue" }, el("h2", { id: "queue" }, `Queue ${chosen}`), tiles.node),
    el(
      "section",
      { "aria-labelledby": "time" },
      el("div", { class: "row" }, el("h2", { id: "time" }, "Over time"), windows(chosen, window)),
      el("div", { class: "charts" }, ...charts.map((each) => each.node)),
    ),
  );
  const depths = [];
  return {
    title: "Overview",
    follow: address("/api/live/queues", { queue: chosen, window }),
    update(data) {
      const status = data.queues.find((each) => each.queue === chosen);
      const problems = data.queues.flatMap((each) => each.problems);
      problems.sort((a, b) => (a.severity === "critical" ? 0 : 1) - (b.severity === "critical" ? 0 : 1));
      showVerdict(verdict, problems, data.queues);
      title("Overview", problems.length);
      compare?.update(data.queues);
      tiles.update(status);
      depths.push([data.now_ms / 1000, status.depth + status.batch_depth]);
      if (depths.length > DEPTHS) depths.shift();
      draw(charts, data.series, depths);
    },
  };
}

function draw([ended, wait, run, waiting], series, depths) {
  const seconds = series.at_ms.map((ms) => ms / 1000);
  ended.update(seconds, [series.completed_per_s, series.failed_per_s, series.denied_per_s]);
  wait.update(seconds, [series.wait_p50_ms, series.wait_p95_ms]);
  run.update(seconds, [series.run_p50_ms, series.run_p95_ms]);
  waiting.update(depths.map(([at]) => at), [depths.map(([, depth]) => depth)]);
}

function showVerdict(section, problems, queues) {
  const said = JSON.stringify(problems);
  const total = queues.reduce((sum, each) => sum + each.per_s, 0);
  const workers = queues.reduce((sum, each) => sum + each.workers_alive, 0);
  if (!problems.length) {
    section.className = "verdict good";
    const text = `Nothing is wrong. ${perSecond(total)} in the last minute, ${many(workers, "worker")} alive.`;
    if (section.dataset.said !== text) fill(section, el("p", {}, el("strong", {}, "✓ "), text));
    section.dataset.said = text;
    return;
  }
  section.className = `verdict ${problems.some((each) => each.severity === "critical") ? "critical" : "warning"}`;
  if (section.dataset.said === said) return;
  section.dataset.said = said;
  fill(section, el("ul", {}, ...problems.map((each) => problem(each, queues.length > 1))));
}

function problem(each, named) {
  return el(
    "li",
    { class: each.severity },
    el("strong", {}, each.severity === "critical" ? "✖ Critical" : "▲ Warning"),
    el("span", {}, `${named ? `${each.queue}: ` : ""}${each.message} `, el("em", {}, each.advice)),
  );
}

function windows(queue, window) {
  const links = WINDOWS.map((each) => el("a", { href: address("/", { queue, window: each }), "aria-current": each === window && "true" }, each));
  return el("nav", { class: "choice", "aria-label": "How far back" }, ...links);
}

function queuesTable(window) {
  return table(
    "Queues",
    [
      { name: "Queue", text: (q) => q.queue, link: (q) => address("/", { queue: q.queue, window }) },
      { name: "Waiting", number: true, text: (q) => count(q.depth + q.batch_depth) },
      { name: "Oldest", number: true, text: (q) => (q.depth + q.batch_depth ? span(q.oldest_ms) : "–") },
      { name: "Ended", number: true, text: (q) => perSecond(q.per_s) },
      { name: "Wait p95", number: true, text: (q) => span(q.wait.p95_ms) },
      { name: "Failed", number: true, text: (q) => percent(q.failed_share) },
      { name: "Denied", number: true, text: (q) => percent(q.denied_share) },
      { name: "Workers", number: true, text: (q) => String(q.workers_alive), mark: (q) => !q.workers_alive },
      { name: "Problems", number: true, text: (q) => String(q.problems.length), mark: (q) => q.problems.length > 0 },
    ],
    (q) => q.queue,
    "No queues.",
  );
}

class Tiles {
  constructor() {
    this.node = el("dl", { class: "tiles" });
    this.tiles = new Map();
  }

  put(name, value, detail, href, bad = false) {
    let tile = this.tiles.get(name);
    if (!tile) {
      tile = { value: el("span", { class: "value" }), detail: el("span", { class: "detail" }), node: el("div", { class: "tile" }) };
      const label = href ? el("a", { href }, name) : name;
      tile.node.append(el("dt", {}, label), el("dd", {}, tile.value, tile.detail));
      this.node.append(tile.node);
      this.tiles.set(name, tile);
    }
    say(tile.value, value);
    say(tile.detail, detail);
    tile.node.classList.toggle("bad", bad);
  }

  update(q) {
    const about = q.sampled ? "≈ " : "";
    const lately = `last ${q.window_s / 60} min`;
    const waiting = q.depth + q.batch_depth;
    this.put("Waiting", count(waiting), q.batch_depth ? `${count(q.batch_depth)} of batch` : "calls", address("/calls", { queue: q.queue, status: "queued" }));
    this.put("Oldest waits", waiting ? span(q.oldest_ms) : "–", "head of the queue", "", q.oldest_ms > 10_000);
    this.put("Throughput", about + perSecond(q.per_s), "ended, last minute");
    this.put("Wait", span(q.wait.p50_ms), `p95 ${span(q.wait.p95_ms)}, ${lately}`);
    this.put("Run", span(q.run.p50_ms), `p95 ${span(q.run.p95_ms)}, ${lately}`);
    this.put("Failed", about + percent(q.failed_share), lately, "/failures", q.failed_share >= 0.5);
    this.put("Denied", about + percent(q.denied_share), lately, "/failures", q.denied_share >= 0.5);
    this.put("Workers", count(q.workers_alive), q.workers_draining ? `${q.workers_draining} draining` : "alive", "/workers", !q.workers_alive);
    this.put("Slots", `${count(q.busy)} of ${count(q.slots)}`, "taken", "/running", q.slots > 0 && q.busy >= q.slots);
    this.put("Dead letters", count(q.dead), "unanswerable", "/failures");
  }
}
