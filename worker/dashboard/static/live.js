// The server's events, read with fetch so that a token can go with the request; and the API's other requests.

const TOKEN = "toolreef.token";
const SILENCE_MS = 25_000;
const RETRY_MS = [500, 1000, 2000, 4000];

/** The token this browser was given, or "". */
export function token() {
  try {
    return localStorage.getItem(TOKEN) ?? "";
  } catch {
    return "";
  }
}

/** Keeps a token for this address alone (host and port; a cookie would go to every port). "" forgets it. */
export function keepToken(value) {
  if (value) localStorage.setItem(TOKEN, value);
  else localStorage.removeItem(TOKEN);
}

function headers(more = {}) {
  const value = token();
  return value ? { authorization: `Bearer ${value}`, ...more } : more;
}

/** What the API said instead of an answer. */
export class Refused extends Error {
  constructor(status, body) {
    super(body?.message ?? `status ${status}`);
    this.status = status;
    this.code = body?.error ?? "";
  }
}

async function answerOf(response) {
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Refused(response.status, body);
  return body;
}

/** One answer of the API. */
export async function get(path) {
  return answerOf(await fetch(path, { headers: headers() }));
}

/** One action. */
export async function post(path, body) {
  const more = headers({ "content-type": "application/json" });
  return answerOf(await fetch(path, { method: "POST", headers: more, body: JSON.stringify(body) }));
}

/**
 * Follows a view until the page goes. `hears(event, data)` is called with the server's events `view`, `lost`, `unknown`,
 * and with `live`, `paused`, `broken`, `refused` of our own. Nothing is read while the tab is hidden.
 */
export function follow(path, hears) {
  let stop = null;
  let failures = 0;
  let timer = 0;

  async function read() {
    const control = new AbortController();
    let silence = 0;
    const listen = () => {
      clearTimeout(silence);
      silence = setTimeout(() => control.abort(), SILENCE_MS);
    };
    stop = control;
    try {
      listen();
      const response = await fetch(path, { headers: headers({ accept: "text/event-stream" }), signal: control.signal });
      if (!response.ok) throw new Refused(response.status, await response.json().catch(() => null));
      failures = 0;
      hears("live", null);
      await parse(response.body, hears, listen);
      throw new Error("the server ended the stream");
    } catch (error) {
      if (stop !== control) return;
      if (error instanceof Refused && error.status < 500) {
        hears("refused", error);
        return;
      }
      hears("broken", error);
      timer = setTimeout(read, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
      failures += 1;
    } finally {
      clearTimeout(silence);
    }
  }

  function halt() {
    const control = stop;
    stop = null;
    clearTimeout(timer);
    control?.abort();
  }

  function begin() {
    if (document.hidden) hears("paused", null);
    else if (!stop) read();
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      halt();
      hears("paused", null);
    } else begin();
  });
  addEventListener("pagehide", halt);
  addEventListener("pageshow", (event) => event.persisted && begin());
  begin();
  return () => {
    halt();
    begin();
  };
}

async function parse(body, hears, listen) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    listen();
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = /^event: (.*)$/m.exec(block);
      const data = /^data: (.*)$/m.exec(block);
      if (event && data) hears(event[1], JSON.parse(data[1]));
    }
  }
}
