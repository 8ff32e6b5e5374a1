// Questions to the person, in <dialog> elements: the browser keeps the focus inside, and Escape closes.

import { el, say } from "./dom.js";
import { get, keepToken, post, token } from "./live.js";

/** Says something in the corner of the page, to everybody's eyes and ears. */
export function tell(text) {
  const said = document.getElementById("said");
  say(said, text);
  said.classList.add("shown");
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => said.classList.remove("shown"), 6000);
}

function open(title, ...children) {
  const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, el("h2", { id: "dialog-title" }, title), ...children);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks for a reason, then acts. `act(values)` may throw; its message is shown and the dialog stays.
 * `fields` are form elements with a name; `action` is {word, kind}.
 */
function ask(title, explanation, fields, action, act) {
  const fault = el("p", { class: "fault", role: "alert" });
  const go = el("button", { class: action.kind }, action.word);
  const back = el("button", { type: "button", class: "quiet", click: () => dialog.close() }, "Back");
  const form = el("form", { method: "dialog" }, el("p", {}, explanation), ...fields, fault, el("p", { class: "buttons" }, go, back));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    say(fault, "");
    try {
      await act(Object.fromEntries(new FormData(form)));
      dialog.close();
    } catch (error) {
      say(fault, error.message);
      go.disabled = false;
    }
  });
  const dialog = open(title, form);
}

function reasonField(label, required) {
  return el("label", {}, label, el("input", { name: "reason", maxlength: "500", required, autocomplete: "off" }));
}

/** Asks, then cancels a call. */
export function askToCancel(row) {
  ask(
    `Cancel ${row.tool || "this call"}?`,
    `Session ${row.session}, call ${row.call}. A command is killed with all that it started; what it has changed so far stays.`,
    [reasonField("Reason (kept with your name)", false)],
    { word: "Cancel the call", kind: "danger" },
    async ({ reason }) => {
      await post(`/api/calls/${[row.queue, row.session, row.call].map(encodeURIComponent).join("/")}/cancel`, { reason });
      tell(`Asked for the end of call ${row.call}.`);
    },
  );
}

function lifeField(chosen) {
  const lives = [["15 minutes", 900], ["1 hour", 3600], ["8 hours", 28800]];
  const options = lives.map(([word, s]) => el("option", { value: s, selected: s === chosen }, word));
  return el("label", {}, "Holds for", el("select", { name: "life_s" }, ...options));
}

function judge(kind, what, verdict, words, fields) {
  const approves = verdict === "approve";
  ask(
    `${approves ? "Approve" : "Reject"} this ${words.noun}?`,
    approves ? words.yes : words.no,
    approves ? [reasonField("Reason (kept with your name)", false), ...fields] : [reasonField("Reason, for the agent", true)],
    approves ? { word: "Approve", kind: "main" } : { word: "Reject", kind: "danger" },
    async ({ reason, life_s }) => {
      const body = { digest: what.digest, reason, ...(life_s ? { life_s: Number(life_s) } : {}) };
      await post(`/api/${kind}/${encodeURIComponent(what.queue)}/${encodeURIComponent(what.session)}/${verdict}`, body);
      tell(`The ${words.noun} of session ${what.session} is ${approves ? "approved" : "rejected"}.`);
    },
  );
}

/** Asks, then approves or rejects the plan that was looked at. */
export function askToJudge(plan, verdict) {
  const words = {
    noun: "plan",
    yes: `Session ${plan.session} may then do in workspace ${plan.workspace} what the plan allows, until the approval ends or the plan changes.`,
    no: `Session ${plan.session} goes back to planning; the agent is told the reason.`,
  };
  judge("plans", plan, verdict, words, [lifeField(3600)]);
}

/** Asks, then lets one call run once, or refuses it. */
export function askToAnswer(asked, verdict) {
  const words = {
    noun: "call",
    yes: `When session ${asked.session} sends this very call again, it runs, once.`,
    no: `Calls of session ${asked.session} with this content are refused for an hour; the agent is told the reason.`,
  };
  judge("asks", asked, verdict, words, [lifeField(900)]);
}

/** Asks for a token, or offers to forget the one that is kept. */
export function askForToken(me, done) {
  if (token() && me) {
    ask(`Signed in as ${me.name}`, `Roles: ${me.roles.join(", ") || "none"}.`, [], { word: "Sign out", kind: "danger" }, async () => {
      keepToken("");
      done();
    });
    return;
  }
  ask(
    "Sign in",
    "With a token made by `toolreef dashboard --add-token NAME=ROLES`. It is kept in this browser, for this address only.",
    [el("label", {}, "Token", el("input", { name: "token", type: "password", required: true, autocomplete: "off" }))],
    { word: "Sign in", kind: "main" },
    async ({ token: given }) => {
      keepToken(given.trim());
      try {
        await get("/api/me");
      } catch (error) {
        keepToken("");
        throw error.status === 401 ? new Error("That token is not known here.") : error;
      }
      done();
    },
  );
}

/** What the keys do. */
export function showKeys(keys) {
  const list = el("dl", { class: "keys" });
  for (const [key, what] of keys) list.append(el("dt", {}, el("kbd", {}, key)), el("dd", {}, what));
  const dialog = open("Keys", list, el("p", { class: "buttons" }, el("button", { class: "quiet", click: () => dialog.close() }, "Close")));
}
