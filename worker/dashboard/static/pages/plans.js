// Plans, and calls that ask, which wait for somebody's yes or no.

import { askToAnswer, askToJudge } from "../dialogs.js";
import { badge, callPath, el, fill, level, payloadBlock, payloadLine, sessionPath, visible, visibleLine } from "../dom.js";
import { ago, clock, many, span } from "../words.js";

export function mount(main, { me, title }) {
  const sum = el("p", { class: "lead" });
  const waiting = el("div", {});
  const judged = el("section", { "aria-labelledby": "judged", hidden: true });
  const actions = el("section", { "aria-labelledby": "did", hidden: true });
  const asks = el("section", { "aria-labelledby": "asks", hidden: true });
  fill(main, el("h1", {}, "Plans"), sum, asks, waiting, judged, actions);
  let said = "";
  return {
    title: "Plans",
    follow: "/api/live/plans",
    update(data) {
      title("Plans", data.waiting.length + data.asks.length);
      const back = data.looked_back_to_ms ? ` Proposals since ${clock(data.looked_back_to_ms)} are looked at.` : "";
      fill(sum, `${many(data.waiting.length, "plan waits", "plans wait")} and ${many(data.asks.length, "call asks", "calls ask")} for approval.${back}`);
      const text = JSON.stringify([data.asks, data.waiting, data.judged, data.actions]);
      if (text === said) return;
      said = text;
      asks.hidden = !data.asks.length;
      fill(asks, el("h2", { id: "asks" }, "Calls that ask"), ...data.asks.map((ask) => askCard(ask, data.now_ms, me)));
      fill(waiting, data.waiting.length ? el("h2", {}, "Waiting for approval") : "", ...data.waiting.map((plan) => planCard(plan, data.now_ms, me)));
      judged.hidden = !data.judged.length;
      fill(judged, el("h2", { id: "judged" }, "Judged lately"), ...data.judged.map((plan) => planCard(plan, data.now_ms, me)));
      actions.hidden = !data.actions.length;
      fill(actions, el("h2", { id: "did" }, "What people did"), actionsList(data.actions));
    },
  };
}

function askCard(ask, nowMs, me) {
  const by = [ask.policy, ask.rule].filter(Boolean).map(visibleLine).join(" / ");
  const known = !ask.about.withheld;
  const card = el(
    "article",
    { class: "card" },
    el("h3", {}, `${visibleLine(ask.tool)} in `, el("a", { href: sessionPath(ask) }, ask.session), " ", level(ask.taint)),
    payloadBlock(ask.about),
    el("p", {}, `Asked by ${by}: `, payloadLine(ask.reason)),
    el("p", { class: "note" }, `Asked ${clock(ask.asked_ms)}, ${ago(ask.asked_ms, nowMs)}, workspace ${visibleLine(ask.workspace)}. `, el("a", { href: callPath({ ...ask, entry: "" }) }, "The call"), " Digest ", el("code", { class: "digest" }, ask.digest)),
  );
  if (me.can_judge) card.append(verdictButtons(known, (verdict) => askToAnswer(ask, verdict)));
  return card;
}

/** A plan with what it would change, and what may be said about it. */
export function planCard(plan, nowMs, me) {
  const body = plan.body.value;
  const known = body !== null && typeof body === "object";
  const heading = el("h3", {}, el("a", { href: sessionPath(plan) }, plan.session), " ", badge(plan.state, { awaiting: "denied", approved: "completed" }[plan.state] ?? "running"), " ", level(plan.taint));
  const about = el(
    "p",
    { class: "note" },
    `Proposed ${clock(plan.proposed_ms)}, ${ago(plan.proposed_ms, nowMs)}, version ${plan.version}, workspace ${visibleLine(plan.workspace)}. `,
    plan.call ? el("a", { href: callPath({ ...plan, entry: "" }) }, "The proposal") : "",
  );
  const card = el("article", { class: "card" }, heading, about);
  if (known) {
    card.append(pre(body.summary ?? ""), scope(body.steps ?? []), steps(body.steps ?? []));
    if (plan.body.redacted.length) card.append(el("p", { class: "note" }, `Redacted: ${plan.body.redacted.join(", ")}.`));
  } else card.append(payloadBlock(plan.body));
  card.append(el("p", { class: "note" }, "Digest ", el("code", { class: "digest" }, plan.digest)));
  if (plan.approval) card.append(verdictOf(plan, nowMs));
  if (me.can_judge && plan.state === "awaiting") card.append(verdictButtons(known, (verdict) => askToJudge(plan, verdict)));
  return card;
}

function pre(text) {
  return el("p", { class: "summary" }, visible(text));
}

function scope(all) {
  const limited = all.length > 0 && all.every((step) => step.paths?.length || step.tools?.length);
  if (!limited) {
    return el("p", { class: "decision ask" }, el("strong", {}, "Would allow everything in the workspace: "), all.length ? "a step names neither paths nor tools." : "it lists no steps.");
  }
  const list = el("dl", { class: "facts" });
  for (const step of all) {
    const tools = step.tools?.length ? step.tools.join(", ") : "all tools that work on paths";
    const paths = step.paths?.length ? step.paths.flatMap((path) => [el("code", {}, visibleLine(path)), " "]) : ["all paths"];
    list.append(el("div", {}, el("dt", {}, `Would allow ${visibleLine(tools)} on`), el("dd", {}, ...paths)));
  }
  return list;
}

function steps(all) {
  return el("ol", { class: "steps" }, ...all.map((step) => el("li", {}, visible(step.description ?? ""))));
}

function verdictOf(plan, nowMs) {
  const { verdict, approver, reason, expires_ms: expiresMs, digest } = plan.approval;
  const left = verdict === "approved" ? (expiresMs > nowMs ? `, ends in ${span(expiresMs - nowMs)}` : `, ended ${ago(expiresMs, nowMs)}`) : "";
  const stale = digest === plan.digest ? "" : " (an earlier version of the plan)";
  const line = el("p", {}, el("strong", {}, verdict === "approved" ? "Approved" : "Rejected"), ` by ${visibleLine(approver)}${stale}${left}${reason ? `: ${visibleLine(reason)}` : ""}`);
  if (!plan.approval_problem) return line;
  const why = { unsigned: "it is not signed by an approver's key", bad_signature: "its signature is wrong" }[plan.approval_problem] ?? plan.approval_problem;
  return el("div", {}, line, el("p", { class: "decision deny" }, el("strong", {}, "Does not count: "), `${why}.`));
}

function verdictButtons(known, act) {
  const approve = el("button", { class: "main", disabled: !known, click: () => act("approve") }, "Approve");
  const reject = el("button", { class: "danger", click: () => act("reject") }, "Reject");
  return el("p", { class: "buttons" }, approve, reject, known ? "" : el("span", { class: "note" }, "What is not shown can't be approved here."));
}

/** What people did, latest first. */
export function actionsList(actions) {
  return el(
    "ul",
    { class: "plain" },
    ...actions.map((each) => {
      const target = each.call ? el("a", { href: callPath({ ...each, entry: "" }) }, `call ${each.call}`) : el("a", { href: sessionPath(each) }, `session ${each.session}`);
      return el("li", {}, `${clock(each.at_ms)} · `, el("strong", {}, visibleLine(each.actor)), ` · ${each.action} · `, target, each.reason ? ` · ${visibleLine(each.reason)}` : "");
    }),
  );
}
