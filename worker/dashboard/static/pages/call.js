// One call, from submit to reply, live while it runs.

import { askToCancel } from "../dialogs.js";
import { address, badge, callPath, el, factList, fill, level, payloadBlock, say, sessionPath, visible, visibleLine } from "../dom.js";
import { ago, clock, count, span } from "../words.js";
import { actionsList } from "./plans.js";

const ENDED = ["completed", "denied", "failed"];
const WORDS = { queued: "waits in the queue", waiting: "waits for its session", granted: "has its turn, waits for a slot", running: "runs", completed: "completed", denied: "denied", failed: "failed" };

export function mount(main, { me, params }) {
  const parts = Object.fromEntries(["title", "decision", "timeline", "args", "output", "audit", "actions"].map((name) => [name, el("div", {})]));
  const live = new Output();
  const known = factList();
  const cancel = el("button", { class: "danger", hidden: true }, "Cancel");
  const section = (name, ...children) => el("section", { "aria-labelledby": cssId(name) }, el("h2", { id: cssId(name) }, name), ...children);
  fill(
    main,
    el("div", { class: "row" }, parts.title, cancel),
    known.node,
    parts.decision,
    section("Timeline", parts.timeline),
    section("Arguments", parts.args),
    section("Output", live.node, parts.output),
    section("Audit entries", parts.audit, parts.actions),
  );
  let shown = null;
  cancel.addEventListener("click", () => askToCancel(shown));
  return {
    title: `Call ${params.call}`,
    follow: address("/api/live/call", { queue: params.queue, session: params.session, call: params.call, entry: params.entry }),
    update(data) {
      const ended = ENDED.includes(data.state);
      const before = shown;
      shown = data;
      cancel.hidden = !me.can_cancel || ended || data.cancelling;
      known.update(facts(data));
      fill(parts.timeline, timeline(data));
      live.update(data);
      // What an ended call shows never changes: it stays as it is, so that it can be read, selected and scrolled.
      if (before && before.state === data.state && before.cancelling === data.cancelling && before.actions.length === data.actions.length) return;
      fill(parts.title, el("h1", {}, `${visibleLine(data.tool) || "unknown tool"} `, badge(data.cancelling && !ended ? "cancelling" : data.state, data.cancelling && !ended ? "denied" : data.state)));
      fill(parts.decision, decision(data));
      fill(parts.args, payloadBlock(data.args));
      fill(parts.output, output(data, live.has));
      fill(parts.audit, audit(data));
      fill(parts.actions, data.actions.length ? actionsList(data.actions) : "");
    },
  };
}

function cssId(name) {
  return name.toLowerCase().replaceAll(" ", "-");
}

function facts(data) {
  const ended = ENDED.includes(data.state);
  return [
    ["Call", data.call],
    ["Session", data.session, () => el("a", { href: sessionPath(data) }, data.session)],
    ["State", data.cancelling && !ended ? "is being cancelled" : WORDS[data.state]],
    ["Worker", visibleLine(data.worker) || "–"],
    ["Attempt", count(data.attempt)],
    ["Waited", span(data.queued_ms)],
    ["Ran", span(data.run_ms)],
    ["Level", data.level, level],
    ["Session's taint", data.taint, level],
    ["Sandbox", visibleLine(data.sandbox) || "–"],
    ["Workspace", visibleLine(data.workspace)],
    ["Queue", data.queue],
    ...(data.deadline_ms ? [["Deadline", clock(data.deadline_ms)]] : []),
    ...(data.priority !== "interactive" ? [["Priority", visibleLine(data.priority)]] : []),
    ...(data.trace ? [["Trace", visibleLine(data.trace)]] : []),
  ];
}

function decision(data) {
  const parts = [];
  if (data.decision) {
    const { verdict, policy, rule, reason } = data.decision;
    const by = [policy, rule].filter(Boolean).map(visibleLine).join(" / ");
    const word = { allow: "Allowed", ask: "Needs approval", deny: "Denied" }[verdict];
    parts.push(el("p", { class: `decision ${verdict}` }, el("strong", {}, word), by ? ` by ${by}` : "", reason ? `: ${visibleLine(reason)}` : ""));
  }
  const error = data.error.value;
  if (error && data.state === "failed") {
    const more = [`code ${error.code}`, `effect: ${error.effect}`, error.retryable ? "may be tried again" : "", error.hint ?? ""].filter(Boolean);
    parts.push(el("p", { class: "decision deny" }, el("strong", {}, "Failed: "), visibleLine(error.message ?? ""), el("br"), el("span", { class: "note" }, more.map(visibleLine).join(" · "))));
  } else if (data.error.withheld) parts.push(payloadBlock(data.error));
  return el("div", {}, ...parts);
}

function timeline(data) {
  const last = ENDED.includes(data.state) ? null : { name: "now", at_ms: data.now_ms, detail: WORDS[data.state] };
  const steps = [...data.timeline.filter((step) => step.name !== "waiting"), ...(last ? [last] : [])];
  const list = el("ol", { class: "timeline" });
  steps.forEach((step, at) => {
    const since = at ? `+${span(step.at_ms - steps[at - 1].at_ms)}` : "";
    list.append(
      el("li", { class: step.name }, el("strong", {}, step.name), " ", el("time", { datetime: new Date(step.at_ms).toISOString() }, clock(step.at_ms)), el("span", { class: "since" }, ` ${since} `), step.detail ? el("span", { class: "note" }, visibleLine(step.detail)) : ""),
    );
  });
  return list;
}

function output(data, isLive) {
  if (ENDED.includes(data.state)) return payloadBlock(data.output, "No output.");
  return isLive ? "" : el("p", { class: "note" }, "Nothing yet.");
}

function audit(data) {
  if (!data.audit.length) return el("p", { class: "note" }, ENDED.includes(data.state) ? "Its entry is no longer in the audit stream; the workers' audit files have it." : "A call's entry is written when it ends.");
  const list = el("ul", { class: "plain" });
  for (const each of data.audit) {
    const text = [`${clock(each.at_ms)}`, each.state, each.code, each.policy, each.rule, `level ${each.level}`, `taint ${each.taint}`, `attempt ${each.attempt}`, `worker ${each.worker}`, `stream id ${each.entry}`];
    list.append(el("li", {}, text.filter(Boolean).map(visibleLine).join(" · "), " ", el("a", { href: callPath(each) }, "link")));
  }
  return list;
}

class Output {
  // What a running command prints; it follows the end unless somebody has scrolled up.
  constructor() {
    this.text = el("pre", { tabindex: "0", role: "region", "aria-label": "Live output" });
    this.note = el("p", { class: "note" });
    this.node = el("div", { hidden: true }, this.note, this.text);
    this.has = false;
  }

  update(data) {
    const ended = ENDED.includes(data.state);
    this.has = data.pieces.length > 0 && !ended;
    this.node.hidden = !this.has;
    if (!this.has) return;
    const last = data.pieces.at(-1);
    const withheld = data.pieces.find((piece) => piece.text.withheld);
    say(this.note, withheld ? `Withheld: ${withheld.text.withheld} is above what this dashboard shows.` : `Last output ${ago(last.at_ms, data.now_ms)}`);
    const text = data.pieces.map((piece) => `${piece.dropped_bytes ? `\n[${piece.dropped_bytes} bytes left out]\n` : ""}${piece.text.value ?? ""}`).join("");
    const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 8;
    say(this.text, visible(text));
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
  }
}
