// One call, from the queue to its record; and the ledger of a session's calls.
//
// A call belongs to its session, not to the RPC that asked for it. Its record is settled once, by
// whoever comes first: the tool, a limit, CancelCall, or the end of the session. An error under
// which nothing ran is no record: the call leaves the ledger, and its id is free.
"use strict";

const { Refusal, duration, fromStruct, identity } = require("./contract");
const { InvalidAction, ToolFailed, findTool, readArguments } = require("./tools");

const LONGEST_SECONDS = 24 * 3600;
const WAITING_CALLS = 32;
const RETRY_SECONDS = 1;

const now = () => performance.now() / 1000;

class Call {
  constructor(request) {
    this.id = request.call_id;
    this.turn = request.turn;
    this.identity = requestIdentity(request);
    this.asked = now();
    this.started = undefined;
    this.settled = false;
    this.stop = new AbortController();
    this.record = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.record.catch(() => {}); // nobody may be waiting for it
  }

  // True if the call had no record yet. `result` is a CallResult, or a Refusal.
  settle(result) {
    if (this.settled) return false;
    this.settled = true;
    if (result instanceof Refusal) this.reject(result);
    else this.resolve({ ...result, ...this.times() });
    this.stop.abort();
    return true;
  }

  times() {
    const started = this.started ?? now();
    return { queued: duration(started - this.asked), run: duration(now() - started) };
  }
}

// All of a request but its limits: what makes it this call and no other.
function requestIdentity({ queue_limit, run_limit, wait, ...rest }) {
  return identity(rest);
}

// Lets the calls of a tool without parallel calls through one at a time, in the order of asking.
class Line {
  constructor() {
    this.busy = false;
    this.waiting = [];
  }

  enter(limit, call) {
    if (!this.busy) {
      this.busy = true;
      return undefined;
    }
    if (this.waiting.length >= WAITING_CALLS) {
      throw new Refusal("SESSION_BUSY", `${WAITING_CALLS} calls of this session wait already`, {
        subject: call.id,
        mend: "ask for their results first",
      });
    }
    return new Promise((resolve, reject) => {
      const leave = (then) => () => {
        clearTimeout(timer);
        this.waiting = this.waiting.filter((one) => one !== turn);
        then();
      };
      const refuse = () =>
        reject(
          new Refusal("QUEUE_LIMIT", `the call did not start within ${limit} s`, {
            subject: call.id,
            mend: "raise the queue limit, or send fewer calls at once",
            retryAfter: RETRY_SECONDS,
          }),
        );
      const turn = leave(resolve);
      const timer = setTimeout(leave(refuse), limit * 1000);
      // A call that is stopped while it waits: it has its record, and must not get the place.
      call.stop.signal.addEventListener("abort", leave(() => reject(call.stop.signal.reason)));
      this.waiting.push(turn);
    });
  }

  leave() {
    this.busy = this.waiting.length > 0;
    if (this.busy) this.waiting[0]();
  }
}

class Ledger {
  constructor() {
    this.calls = new Map();
    this.forgotten = new Set();
    this.acknowledged = 0;
  }

  // The call that this request repeats, or undefined for one that may run.
  find(request) {
    const call = this.calls.get(request.call_id);
    if (call !== undefined) {
      if (call.identity === requestIdentity(request)) return call;
      throw new Refusal("CALL_ID_REUSED", "the call_id came before with another request", {
        subject: request.call_id,
        mend: "give every action a call_id of its own",
      });
    }
    if (this.forgotten.has(request.call_id) || request.turn < this.acknowledged) {
      throw new Refusal("RESULT_FORGOTTEN", `turn ${request.turn} was acknowledged`, {
        subject: request.call_id,
      });
    }
    return undefined;
  }

  // Enters a new call. It acknowledges all results of earlier turns: they may go, their ids stay.
  enter(call) {
    this.acknowledged = Math.max(this.acknowledged, call.turn);
    for (const known of this.calls.values()) {
      if (known.settled && known.turn < call.turn) {
        this.calls.delete(known.id);
        this.forgotten.add(known.id);
      }
    }
    this.calls.set(call.id, call);
  }

  free(call) {
    this.calls.delete(call.id);
  }
}

// Runs a call in a session, and settles it.
async function perform(session, request, call, queueLimit, runLimit) {
  try {
    call.settle(await result(session, request, call, queueLimit, runLimit));
  } catch (error) {
    if (!(error instanceof Refusal)) {
      if (call.settled) return; // it was stopped
      throw error;
    }
    session.ledger.free(call);
    call.settle(error);
  }
}

async function result(session, request, call, queueLimit, runLimit) {
  let name = request.tool;
  let tool;
  let given;
  try {
    name = name || findTool(request.action, session.tools);
    tool = session.tools.find((one) => one.name === name);
    if (tool === undefined) {
      throw new Refusal("UNKNOWN_TOOL", `the session has no tool ${name}`, { subject: name });
    }
    const parsed = request.arguments ? fromStruct(request.arguments) : undefined;
    given = readArguments(tool, request.action, parsed);
  } catch (error) {
    if (!(error instanceof InvalidAction)) throw error;
    const invalid = failure("INVALID_ACTION", error.message);
    return { ...invalid, tool: name, valid: false, invalid_reason: error.message };
  }
  if (!tool.parallel) await session.line.enter(Math.min(queueLimit, LONGEST_SECONDS), call);
  try {
    call.started = now();
    return { ...(await run(session, tool, given, call, runLimit)), tool: name };
  } finally {
    if (!tool.parallel) session.line.leave();
  }
}

async function run(session, tool, given, call, runLimit) {
  const limit = Math.min(runLimit, LONGEST_SECONDS);
  const timer = setTimeout(() => {
    const stopped = failure("TIMEOUT", `${tool.name} was stopped after ${limit} s`);
    call.settle({ ...stopped, tool: tool.name });
  }, limit * 1000);
  try {
    return { ...(await tool.run(session.state, given, call.stop.signal)), valid: true };
  } catch (error) {
    if (error instanceof ToolFailed) return failure("EXCEPTION", error.message);
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

// A tool error: an answer that the policy reads.
function failure(kind, message) {
  return {
    valid: true,
    observation: [{ text: message }],
    error: { kind: `TOOL_ERROR_KIND_${kind}`, message },
  };
}

module.exports = { Call, Ledger, Line, failure, perform };
