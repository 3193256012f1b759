// Sessions: who owns them, what they hold, when they end.
"use strict";

const { Refusal, identity } = require("./contract");
const { Ledger, Line } = require("./calls");
const { tools } = require("./tools");

const REAP_SECONDS = 0.25;
const MOST_SESSIONS = 1024;
const MOST_TOMBSTONES = 8192;
const RETRY_SECONDS = 1;

const now = () => performance.now() / 1000;

class Sessions {
  constructor() {
    this.open = new Map();
    this.ended = new Map(); // names of closed sessions, the oldest first
    this.reaper = setInterval(() => this.reap(), REAP_SECONDS * 1000);
  }

  // The session of a request: a new one, or the one that the same request opened before.
  opened(request, lease) {
    const { lease: _, queue_limit: __, ...wish } = request;
    const known = this.open.get(request.session_id);
    if (known !== undefined) {
      if (known.identity === identity(wish)) return known;
      throw new Refusal("INVALID_REQUEST", "the session is open already, by another request", {
        subject: request.session_id,
        mend: "choose a session_id that was never used",
      });
    }
    if (this.ended.has(request.session_id)) throw this.gone(request.session_id);
    if (this.open.size >= MOST_SESSIONS) {
      throw new Refusal("TOO_MANY_SESSIONS", `${MOST_SESSIONS} sessions are open`, {
        subject: request.session_id,
        retryAfter: RETRY_SECONDS,
      });
    }
    const session = {
      id: request.session_id,
      owner: request.owner,
      identity: identity(wish),
      leaseUntil: now() + lease,
      tools: offered(request.tools),
      state: {},
      ledger: new Ledger(),
      line: new Line(),
    };
    this.open.set(session.id, session);
    return session;
  }

  get(id) {
    const session = this.open.get(id);
    if (session === undefined) throw this.gone(id);
    return session;
  }

  // Renews all of an owner's sessions. `lost` are those of `believed` that are not here.
  renew(owner, lease, believed) {
    const mine = [...this.open.values()].filter((session) => session.owner === owner);
    for (const session of mine) session.leaseUntil = now() + lease;
    const held = mine.map((session) => session.id);
    return { held, lost: believed.filter((id) => !held.includes(id)) };
  }

  // Ends a session and its calls in flight. False if it was not open.
  close(id) {
    const session = this.open.get(id);
    if (session === undefined) return false;
    this.open.delete(id);
    this.ended.set(id, true);
    if (this.ended.size > MOST_TOMBSTONES) this.ended.delete(this.ended.keys().next().value);
    for (const call of session.ledger.calls.values()) call.settle(this.gone(id));
    return true;
  }

  reap() {
    for (const session of this.open.values()) {
      if (session.leaseUntil < now()) this.close(session.id);
    }
  }

  gone(id) {
    return this.ended.has(id)
      ? new Refusal("SESSION_CLOSED", "the session has ended", { subject: id })
      : new Refusal("SESSION_NOT_FOUND", "no such session here", { subject: id });
  }

  end() {
    clearInterval(this.reaper);
    for (const id of [...this.open.keys()]) this.close(id);
  }
}

// The tools that a session named; all of them where it named none.
function offered(names) {
  for (const name of names) {
    if (!tools.some((tool) => tool.name === name)) {
      throw new Refusal("UNKNOWN_TOOL", `there is no tool ${name} here`, { subject: name });
    }
  }
  return names.length ? tools.filter((tool) => names.includes(tool.name)) : tools;
}

module.exports = { Sessions };
