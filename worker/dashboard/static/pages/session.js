// One session: what it may do, what it has seen, what it did.

import { address, badge, el, factList, fill, level, path, say, visibleLine } from "../dom.js";
import { ago, clock, count, many } from "../words.js";
import { callsTable } from "./calls.js";
import { actionsList, planCard } from "./plans.js";

const MODES = { normal: "no plan is asked for", planning: "only reads, until a plan is proposed", awaiting: "only reads, until the plan is judged", approved: "as the approved plan says" };

export function mount(main, { me, params }) {
  const parts = Object.fromEntries(["taint", "busy", "plan", "actions"].map((name) => [name, el("div", {})]));
  const calls = callsTable("Calls of this session", { session: false });
  const known = factList();
  const back = el("span", {});
  const looked = el("p", { class: "note" }, back, el("a", { href: address("/calls", { queue: params.queue, session: params.session }) }, "All its calls"));
  fill(
    main,
    el("h1", {}, `Session ${visibleLine(params.session)}`),
    known.node,
    el("section", { "aria-labelledby": "taint" }, el("h2", { id: "taint" }, "Taint"), parts.taint),
    el("section", { "aria-labelledby": "now" }, el("h2", { id: "now" }, "Now"), parts.busy),
    parts.plan,
    el("section", { "aria-labelledby": "calls" }, el("h2", { id: "calls" }, "Latest calls"), calls.node, looked),
    parts.actions,
  );
  const said = {};
  const put = (name, value, make) => {
    const text = JSON.stringify(value);
    if (said[name] !== text) fill(parts[name], make());
    said[name] = text;
  };
  return {
    title: `Session ${params.session}`,
    follow: `/api/live/session?${new URLSearchParams({ queue: params.queue, session: params.session })}`,
    update(data) {
      const { now_ms: nowMs } = data;
      known.update(facts(data));
      put("taint", data.taint_history, () => taintHistory(data));
      put("busy", [data.running, data.waiting, data.waiting_first], () => busy(data));
      put("plan", [data.plan, data.plan_state], () => (data.plan ? el("section", { "aria-label": "Plan" }, el("h2", {}, "Plan"), planCard(data.plan, nowMs, me)) : ""));
      put("actions", data.actions, () => (data.actions.length ? el("section", { "aria-label": "Actions" }, el("h2", {}, "What people did"), actionsList(data.actions)) : ""));
      calls.update(data.calls);
      say(back, data.looked_back_to_ms ? `Looked back to ${clock(data.looked_back_to_ms)}, ${ago(data.looked_back_to_ms, nowMs)}. ` : "");
    },
  };
}

function facts(data) {
  const state = data.plan_state === "normal" ? "" : `, ${data.plan_state}`;
  return [
    ["Taint", data.taint, level],
    ["Mode", `${visibleLine(data.mode)}${state}: ${MODES[data.plan_state]}`],
    ["Workspace", visibleLine(data.workspace)],
    ["Its level", data.workspace_level, level],
    ["Pinned at", data.workspace_pin ?? "–", (text) => (data.workspace_pin ? level(text) : text)],
    ["Opened", data.opened ? clock(data.opened_ms) : "by its first call"],
    ["Queue", data.queue],
  ];
}

function taintHistory(data) {
  if (!data.taint_history.length) return el("p", { class: "note" }, "It has been given nothing above PUBLIC.");
  const list = el("ol", { class: "timeline" });
  for (const step of data.taint_history) {
    const by = step.by === "orchestrator" ? "the orchestrator" : el("a", { href: path("calls", data.queue, data.session, step.by) }, step.by);
    list.append(el("li", {}, level(step.level), ` ${clock(step.at_ms)} by `, by));
  }
  return list;
}

function busy(data) {
  const parts = [];
  if (data.running.length) {
    const links = data.running.flatMap((call) => [el("a", { href: path("calls", data.queue, data.session, call) }, call), " "]);
    parts.push(el("p", {}, badge("running"), " ", ...links));
  }
  if (data.waiting) {
    const links = data.waiting_first.flatMap((call) => [el("a", { href: path("calls", data.queue, data.session, call) }, call), " "]);
    parts.push(el("p", {}, badge("waiting"), ` ${many(data.waiting, "call")} for the session's turn, first `, ...links));
  }
  return el("div", {}, ...(parts.length ? parts : [el("p", { class: "note" }, `${count(0)} calls run or wait for their turn.`)]));
}
